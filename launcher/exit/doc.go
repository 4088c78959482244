// Package exit holds the exit statuses of gorun that are not a rank's own, and the
// errors that carry one.
//
// An [Error] carries the status with which gorun ends. Every other error ends gorun with 1, or
// with 2 if the command line is wrong. Shells and timeout(1) use the same numbers for the same
// things.
package exit
