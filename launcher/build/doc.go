// Package build finds the programs that a command line names, and has the go command build
// those that are Go source.
//
// A build is a job of one rank under a guardian of its own. So a build that is interrupted,
// or whose gorun is killed, leaves neither processes nor files. The executable stays in Go's
// build cache.
package build
