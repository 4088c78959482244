// Package options reads gorun's command line.
//
// [Parse] turns it into [Options], which hold for the job. They have an [App] for each program
// between the colons, and [Hosts], which say where ranks run. A mistake is an error that says
// what to write instead: the flag that was probably meant, or gorun's name for a flag of
// mpirun, srun or torchrun. The package touches files only to see whether a folder or a file of
// a flag can be used.
package options
