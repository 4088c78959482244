package snapshot

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Link is what the links in /proc to the memory's file say.
const Link = "/memfd:" + name + " (deleted)"

const name = "gorun-snapshots"

// The last page of the memory has, one number after the other, how many ranks the job is to have, 0 if nobody has asked, the process
// id of its launcher, and how many ranks that has started.
const (
	wantedAt   = memoryEnds - page
	launcherAt = wantedAt + 8
)

// Want asks the launcher to go on with a number of ranks; 0 takes that back.
func Want(m Memory, ranks int) error { return put(m, wantedAt, ranks) }

// Wanted returns how many ranks the job is asked to have, 0 if it is not asked.
func Wanted(m Memory) (ranks int, err error) {
	n, err := take(m, wantedAt, 1)
	if err != nil {
		return 0, err
	}
	return min(n[0], MaxRanks), nil
}

// Started notes that a launcher has started a number of ranks.
func Started(m Memory, launcher, ranks int) error { return put(m, launcherAt, launcher, ranks) }

// Running returns what Started has noted last; the launcher is 0 if it runs on another host.
func Running(m Memory) (launcher, ranks int, err error) {
	n, err := take(m, launcherAt, 2)
	if err != nil {
		return 0, 0, err
	}
	return n[0], n[1], nil
}

func put(m Memory, at int64, numbers ...int) error {
	var b []byte
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	_, err := m.WriteAt(b, at)
	return err
}

func take(m Memory, at int64, count int) (numbers []int, err error) {
	b := make([]byte, 8*count)
	if _, err := m.ReadAt(b, at); err != nil {
		return nil, fmt.Errorf("snapshot: reading how many ranks there are and are wanted: %w", err)
	}
	for ; len(b) > 0; b = b[8:] {
		numbers = append(numbers, int(binary.LittleEndian.Uint64(b)&math.MaxInt32))
	}
	return numbers, nil
}
