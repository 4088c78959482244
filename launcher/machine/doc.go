// Package machine tells which parts of gorun's machine a job may use: how many cores, and
// on Linux which CPUs these are and in which sockets they lie.
package machine
