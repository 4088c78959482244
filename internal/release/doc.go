// Package release publishes a word of shared memory. An atomic store of package sync/atomic is a locked
// exchange on amd64, which also holds back later loads until the cache line has come. A writer of a
// queue needs less: that its earlier stores are seen before the word.
package release
