// Package guardian starts the processes of a job, and leaves none of them behind, whatever
// happens to the launcher.
//
//	launcher ────── keeper ────── guardian ──┬── rank 0 ── its own children
//	                                         ├── rank 1
//	                                         └── …
//
// The guardian is the launcher's own binary, started again: Main is its main function. It forks
// the ranks and reaps every process that ends below it; it decides nothing. [Start] hands it a
// [Spec]. Then the launcher sends it a [Command] now and then, and the guardian reports each
// [Event]. They talk over a socket. When it closes, the other side is dead.
//
// Each rank has a parent-death signal, so it dies with the guardian. The guardian is a child
// subreaper: a process below it whose parent has died becomes its child. It kills
// its children until there are none when all ranks have ended, when told to, and when the
// launcher is gone. The keeper, which is the guardian's parent, and the launcher are
// subreapers too, and kill the remaining processes if the guardian is killed ([Sweep]).
package guardian
