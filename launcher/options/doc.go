// Package options reads gorun's command line.
//
// [Parse] turns it into [Options], which hold for the job, with an [App] for each program
// between the colons, and [Hosts], which say where ranks run. A mistake is an error that says
// what to write instead: the flag that was probably meant, or gorun's word for a flag of
// mpirun, srun or torchrun. It reads no files but to see whether a folder or a file of a flag
// can be used.
package options
