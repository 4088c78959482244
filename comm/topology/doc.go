// Package topology arranges the ranks of a communicator as a grid or as a graph of neighbours,
// and has collectives in which a rank exchanges data with its neighbours alone.
//
// A Grid is what MPI calls a Cartesian topology. Simulations divide an array among the ranks of
// a grid. Each rank keeps a block of it with a halo, a border of cells that belong to its
// neighbours, and Halo brings the halo up to date in one call:
//
//	g, err := topology.NewGrid(ctx, world, []int{0, 0}, []bool{true, false}) // a cylinder
//	…
//	block := make([]float64, (rows+2)*(columns+2)) // rows × columns cells in a halo of 1
//	err = topology.Halo(ctx, g, block, []int{rows + 2, columns + 2}, 1)
//
// Shift sends a slice along one dimension of a grid.
//
// A Graph has any ranks as neighbours, such as the parts of a mesh that share a border.
//
// AllGather, AllToAll and AllToAllV are MPI's neighbourhood collectives. They take a Grid or a
// Graph. A rank sends one message to each destination and receives one from each source, so
// their cost does not depend on the number of ranks. The order of the messages is such that
// ranks never wait for each other in a circle.
//
// A Grid and a Graph have a communicator of their own: their messages do not mix with the
// program's.
package topology
