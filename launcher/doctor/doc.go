// Package doctor is the command gorun doctor: it lists what this machine offers to a job, and
// says how to install the missing parts.
package doctor
