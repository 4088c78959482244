// Package stdio moves the standard streams of a job.
//
//	rank 0 stdout ── pipe ── Pump ──┐
//	rank 0 stderr ── pipe ── Pump ──┼── sink ── gorun's standard output or error, or a file
//	rank 1 stdout ── pipe ── Pump ──┘
//	gorun's standard input ── Relay ── pipes ── ranks
//
// A [Console] takes gorun's own lines and the ranks' output. A [Pump] copies one stream
// of one process there. Lines of different streams do not mix in a file that they share, and each
// may carry a tag. On a terminal a line that is redrawn, such as a progress bar, stays below
// the others. [Pumps] waits for the rest of the output when the job is over.
package stdio
