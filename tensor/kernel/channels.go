package kernel

import "unsafe"

// Channels are the kernels that normalise the channels of images. A device may lack them: see tensor.HasChannels. They take Float32.
type Channels interface {
	ChannelMoments(n ChannelNorm)  // Sums: the mean of each channel of X, and the sum of the squares of the distances from it
	ChannelNorm(n ChannelNorm)     // Y
	ChannelNormSums(n ChannelNorm) // Sums: of DY, and of DY·h
	ChannelNormGrad(n ChannelNorm) // DX from DY and Sums
}

// A ChannelNorm has the operands of a BatchNorm, contiguous: X, Y, DX and DY are [Batch, Channels, Positions], Weight and Bias [Channels],
// and Mean, Rstd and Sums, float64, [Channels], [Channels] and [2, Channels]. With h = (x - Mean)·Rstd
//
//	Y  = h·Weight + Bias
//	DX = Weight·Rstd·(DY - Sums[0]/N - h·Sums[1]/N)
//
// N is over how many elements of a channel Mean and Rstd were computed; 0: they do not depend on X, and DX is Weight·Rstd·DY.
type ChannelNorm struct {
	Batch, Channels, Positions int
	N                          float64
	X, Y, DX, DY               unsafe.Pointer
	Weight, Bias               unsafe.Pointer
	Mean, Rstd, Sums           unsafe.Pointer
}
