// Package testenv helps tests of several packages with their environment: programs of the
// machine that a test needs, packages that it builds with the go command, and files of
// testdata that hold the output it expects.
package testenv
