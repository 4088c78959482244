// Package exit holds the exit statuses of gorun that are not a rank's own, and the
// errors that carry one.
//
// An [Error] says with which status gorun ends; every other error ends it with 1, or 2 if the
// command line is wrong. The numbers are those that shells and timeout(1) use for the
// same things.
package exit
