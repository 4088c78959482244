// Package guardian starts the processes of a job and leaves none of them behind, whatever
// happens to its caller.
//
//	launcher ────── keeper ────── guardian ──┬── rank 0 ── its own children
//	                                         ├── rank 1
//	                                         └── …
//
// The guardian is the caller's own binary, started again: Main is its main function. It forks
// the ranks and reaps whatever ends below it; it decides nothing. [Start] hands it a [Spec];
// then the launcher sends it a [Command] now and then, and the guardian tells each [Event].
// They talk over a socket whose end is the other's death.
//
// Each rank has a parent-death signal, so it dies with the guardian. The guardian is a child
// subreaper: a process whose parent has died becomes its child, wherever it moved. It kills
// its children until there are none when all ranks have ended, when told to, and when the
// launcher is gone. The keeper, which is the guardian's parent, and the launcher are
// subreapers too, and kill what is left if the guardian is killed ([Sweep]).
package guardian
