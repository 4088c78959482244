// Package doctor is the command gorun doctor: it says what this machine offers to a job, and
// how to get what is missing.
package doctor
