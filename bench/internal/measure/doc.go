// Package measure is what the benchmark programs share: how a case is timed, how
// its memory is counted, and how results are printed.
//
//	func main() { measure.Main(run) }
//
//	func run(b *measure.Bench) error {
//		x := dtensor.Normal(b.Mesh, dtensor.Key{}, 0, 1, []int{1024, 1024}, layout.Shard(0))
//		return b.Case("exp", func() { x.Exp() }, func(t measure.Timing) []measure.Field {
//			return []measure.Field{measure.Rate("gelem_s", 1024*1024, t)}
//		})
//	}
//
// # How a case is timed
//
// A few calls warm up. Then, for each call: a barrier; the time of the slowest
// rank. The median over the calls is "ns", beside "min_ns" and "p10_ns", the
// tenth of the calls that were faster than it. "loop_ns" is the time of calls
// back to back, without barriers, divided by their number: the better figure
// where a call takes no longer than reading a clock; it is left out for calls
// above 10 ms. There are at least 20 calls (5 if they take more than ten times
// the budget), and as many as fill the budget. "faults" is how many fresh pages a
// call touched: 0 in a steady state. One processor a rank, unless -threads says
// otherwise.
//
// # How memory is counted
//
// After the pool has given everything back that nothing refers to, one call.
// "arena" is what the rank has taken from its arena at most, beyond what it held
// before; "pss" how much the rank's proportional share of pages has grown, the
// mean over the ranks: a page that several ranks have mapped counts once. Both
// contain the results of the call.
package measure
