// Package top is the command gorun top: it shows what each rank of a running job does.
//
// It reads the job's control segment, which it finds among the open files of the job's
// gorun, and the process table. The job does not notice.
package top
