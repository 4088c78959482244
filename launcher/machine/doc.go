// Package machine says what a job may use of the machine that gorun runs on: its cores, and
// on Linux which CPUs these are and in which sockets they lie.
package machine
