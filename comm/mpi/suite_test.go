//go:build linux && !nolibs

package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-spmd/gorun/comm"
	"github.com/gorun-spmd/gorun/comm/commtest"
)

// exact are the cases whose reductions have the same bits in any order.
var exact = []string{"int8", "int32", "int64", "uint8", "bool"}

// compared are the failures whose errors depend on how many of the others' calls are compared.
var compared = []string{"disagreement", "disagreement of counts", "disagreement of messages", needDebug}

// needDebug is the failure whose error names ranks that are not this one's neighbours.
const needDebug = "deadline"

// suite is the conformance suite, over variants of the world.
func suite(ctx context.Context, r *Rank) error {
	all, divided, unchecked := commtest.Failures(), commtest.Collectives(), commtest.Groups()
	integers := slices.DeleteFunc(commtest.Collectives(), func(c commtest.Case) bool { return !slices.Contains(exact, c.Name) })
	if len(integers) != len(exact) {
		return fmt.Errorf("%d cases of %v are there", len(integers), exact)
	}
	if r.Size() > 2 { // many ranks on few cores take long
		integers, divided = integers[:2], divided[:3]
		all = slices.DeleteFunc(all, func(c commtest.Case) bool { return !slices.Contains(compared, c.Name) })
	}
	plain := slices.Concat(commtest.Collectives(), commtest.Groups(), commtest.Failures())
	if r.Size() > 4 { // memory is all the same to this backend
		plain = slices.DeleteFunc(plain, func(c commtest.Case) bool {
			return strings.HasPrefix(c.Name, "large") && !strings.HasSuffix(c.Name, "heap")
		})
	}
	for _, v := range []struct {
		name   string
		cases  []commtest.Case
		change func(*Rank)
	}{
		{"plain", plain, func(*Rank) {}},
		{"debug", all, func(r *Rank) { r.checks = checkAll }},
		{"unchecked", unchecked, func(r *Rank) { r.checks = checkNone }},
		{"unordered", integers, func(r *Rank) { r.unordered = true }},
		{"divided", divided, func(r *Rank) { r.most = 10_000 }},
	} {
		world, err := variant(r, v.change)
		if err != nil {
			return err
		}
		for _, c := range v.cases {
			if v.name == "plain" && c.Name == needDebug && r.Size() > 3 {
				continue
			}
			began := time.Now()
			if err := c.Run(ctx, world); err != nil {
				return fmt.Errorf("%s, %s: %w", v.name, c.Name, err)
			}
			if r.Rank() == 0 && os.Getenv("MPI_TEST_TIMES") != "" {
				fmt.Println(v.name, c.Name, time.Since(began))
			}
		}
	}
	return unordered(ctx, r)
}

// variant is a world with all ranks of r and other properties.
func variant(r *Rank, change func(*Rank)) (*comm.Comm, error) {
	if r.Size() == 1 {
		return comm.NewWorld(r), nil
	}
	b, err := r.Split(context.Background(), all(r.Size()))
	if err != nil {
		return nil, err
	}
	change(b.(*Rank))
	return comm.NewWorld(b), nil
}

// unordered lets the library reduce numbers whose sums are exact.
func unordered(ctx context.Context, r *Rank) error {
	world, err := variant(r, func(v *Rank) { v.unordered = true })
	if err != nil {
		return err
	}
	n, me := world.Size(), world.Rank()
	sum, counts := float64(n*(n+1)/2), make([]int, n)
	total := 0
	for i := range counts {
		counts[i] = i + 1
		total += i + 1
	}
	fill := func(length int) []float64 {
		x := make([]float64, length)
		for i := range x {
			x[i] = float64(me + 1)
		}
		return x
	}
	x, y, z, v := fill(5), make([]float64, 5), make([]float64, 3), make([]float64, me+1)
	avg := fill(2)
	err = errors.Join(
		comm.Reduce(ctx, world, y, x, comm.Sum, n-1),
		comm.AllReduce(ctx, world, x, comm.Sum),
		comm.AllReduce(ctx, world, avg, comm.Avg),
		comm.ReduceScatter(ctx, world, z, fill(3*n), comm.Sum),
		comm.ReduceScatterV(ctx, world, v, fill(total), counts, comm.Sum),
	)
	if me == n-1 {
		x = append(x, y...)
	}
	for i, got := range slices.Concat(x, z, v, []float64{avg[0] * float64(n), avg[1] * float64(n)}) {
		if d := got - sum; d > 1e-12*sum || d < -1e-12*sum {
			return errors.Join(err, fmt.Errorf("unordered: [%d] is %v, want %v", i, got, sum))
		}
	}
	return err
}

// sizes are the numbers of ranks of a test. Those of the race detector end at 2: more ranks
// than cores take minutes under it. So do more than 3 of MPICH, whose ranks spin: 2 and 3 show what it does with even
// and uneven numbers, and what this package does with 4 and with 7 is the same over Open MPI.
func (l launcher) sizes(all ...int) []int {
	most := slices.Max(all)
	switch {
	case testing.Short():
		most = 2
	case l.library == "MPICH":
		most = 3
	}
	return slices.DeleteFunc(all, func(n int) bool { return n > most })
}

func TestSuite(t *testing.T) {
	eachLauncher(t, func(t *testing.T, l launcher) {
		for _, n := range l.sizes(1, 2, 3, 4, 7) {
			t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) { l.pass(t, n, "suite") })
		}
	})
}
