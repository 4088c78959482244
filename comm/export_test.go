package comm

// SplitOnHost is SplitHosts on a machine that the test names.
var SplitOnHost = (*Comm).splitHosts
