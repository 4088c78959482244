// Package testenv is what tests of several packages share about the world around
// them: programs of the machine that a test needs, packages that it has the go command
// build, and files of testdata that hold the output it expects.
package testenv
