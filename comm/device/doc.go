// Package device carries out collectives on memory of devices that the process cannot
// touch, such as GPUs: it wraps the Backend of each communicator of a world, see UseStage.
//
// A call whose buffers lie in device memory goes one of these ways:
//
//   - Staged: in parts through pinned memory of the host. This always works.
//   - By address: the backend hands the device's addresses to an MPI library that takes
//     them, see TryDirect.
//   - By windows: ranks of one host copy from memory that the others' devices have
//     mapped, see TryPeers.
//   - Folded by the devices: reductions, over one of the two ways above, see TryFold.
//
// The way is found by trials that all ranks make together. Calls of few bytes are staged
// in any case, see StageBelow. A job without devices has no wrapper.
package device
