// Package stdio moves the standard streams of a job.
//
//	rank 0 stdout ── pipe ── Pump ──┐
//	rank 0 stderr ── pipe ── Pump ──┼── sink ── gorun's standard output or error, or a file
//	rank 1 stdout ── pipe ── Pump ──┘
//	gorun's standard input ── Relay ── pipes ── ranks
//
// A [Console] is where gorun's own lines and the ranks' output end. A [Pump] copies one stream
// of one process there. Lines of different streams do not mix in a file that they share, each
// may carry a tag, and on a terminal a line that is redrawn, as a progress bar is, stays below
// the others. [Pumps] waits for what is on its way when the job is over.
package stdio
