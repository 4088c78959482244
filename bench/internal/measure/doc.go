// Package measure is the common part of the benchmark programs: it times a case, counts
// its memory, and prints results.
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
// A few calls warm up. Then a barrier comes before each call, and the time of the slowest
// rank counts. "ns" is the median over the calls, "min_ns" the fastest, and a tenth of the calls
// were faster than "p10_ns". "loop_ns" is the time of calls
// back to back, without barriers, divided by their number. It is the better figure
// where a call takes no longer than reading a clock, and is left out for calls
// above 10 ms. There are as many calls as fill the budget, but at least 20 (5 if they take more
// than ten times the budget). "faults" is how many fresh pages a
// call touched: 0 in a steady state. Each rank uses one processor, unless -threads says
// otherwise.
//
// # How memory is counted
//
// The pool frees all memory that is not in use; then one call runs. "arena" is the most that the
// rank took from its arena in the call. "pss" is the growth of the rank's proportional
// set size, the mean over the ranks: a page that several ranks have mapped counts once. Both
// contain the results of the call.
package measure
