//go:build !unix

package testenv

import "testing"

// shared returns no folder: each test has its own programs.
func shared(testing.TB, []string) (folder string, release func()) { return "", func() {} }

// Lock locks nothing.
func Lock(string) (release func(), err error) { return func() {}, nil }
