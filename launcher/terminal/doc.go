// Package terminal asks whether a file is a terminal, and fits lines into its width.
package terminal
