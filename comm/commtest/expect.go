package commtest

import (
	"fmt"

	"github.com/gorun-spmd/gorun/comm"
)

// Expect runs f and returns an error unless it makes exactly the calls that
// budget lists, on this rank and on all communicators of c's world. budget is
// as comm.Stats prints it, with or without the bytes, kinds in the order of
// their constants; "" means none:
//
//	err := commtest.Expect(world, "AllReduce×1 4096 B, AllToAll×2 512 B", func() error { … })
//	err := commtest.Expect(world, "AllReduce×1, AllToAll×2", func() error { … })
func Expect(c *comm.Comm, budget string, f func() error) error {
	r := c.Record()
	err := f()
	events := r.Stop()
	if err != nil {
		return err
	}
	stats := r.Stats()
	if budget == stats.String() || budget == stats.Calls() {
		return nil
	}
	list := ""
	for _, e := range events {
		list += fmt.Sprintf("\n\t%v of %d B on %s at %s", e.Kind, e.Bytes, e.Comm, e.Site())
		if e.Cause != "" {
			list += " for " + e.Cause
		}
	}
	return fmt.Errorf("rank %d called %q, the budget is %q%s", c.WorldRank(c.Rank()), stats.String(), budget, list)
}
