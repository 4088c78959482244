// Package supervisor decides what happens to a running job.
//
// A [Supervisor] selects over the guardian's events, signals to gorun and one deadline, and
// returns how the job ended. It sees the world only through its fields, so tests play the
// guardian, the user and the clock. The same supervisor watches the ranks that gorun starts, a
// build, and another launcher.
//
//	running ── a rank fails, a signal, --timeout ──> ending ── --grace is over ──> killing
//	   └────── the job hangs ──> asking (stacks) ──────┘
package supervisor
