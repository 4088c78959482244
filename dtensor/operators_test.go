package dtensor_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/gorun-spmd/gorun/tensor/kernel"
)

// Every unary and binary operator is a method of Tensor, with a case of its own among
// opCases.
func TestEveryOperatorHasAMethodAndACase(t *testing.T) {
	var names []string
	for _, op := range kernel.UnaryOps() {
		names = append(names, op.String())
	}
	for _, op := range kernel.BinaryOps() {
		names = append(names, op.String())
	}
	for _, name := range names {
		if _, ok := reflect.TypeFor[T]().MethodByName(name); !ok {
			t.Errorf("package kernel has operator %s; Tensor has no such method", name)
		}
		if !slices.ContainsFunc(opCases, func(c opCase) bool { return c.name == name }) {
			t.Errorf("operator %s has no case in opCases", name)
		}
	}
}
