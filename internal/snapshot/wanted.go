package snapshot

import (
	"encoding/binary"
	"fmt"
)

// What the memory's file is called in /proc: that of a job of one host, and of one of several hosts.
const (
	Name      = "gorun-snapshots"
	DepotName = "gorun-depot-snapshots"
)

// wantedAt is in the last page of the memory: how many ranks the job is to have, 0 if nobody
// has asked.
const wantedAt = memoryEnds - page

// Want asks the launcher to go on with so many ranks; 0 takes that back.
func Want(m Memory, ranks int) error {
	_, err := m.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(ranks)), wantedAt)
	return err
}

// Wanted returns how many ranks the job is asked to have, 0 if it is not asked.
func Wanted(m Memory) (ranks int, err error) {
	var b [8]byte
	if _, err := m.ReadAt(b[:], wantedAt); err != nil {
		return 0, fmt.Errorf("snapshot: reading how many ranks are wanted: %w", err)
	}
	return int(min(binary.LittleEndian.Uint64(b[:]), MaxRanks)), nil
}
