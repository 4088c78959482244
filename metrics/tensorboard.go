package metrics

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/gorun-spmd/gorun/internal/fault"
)

// NewTensorBoard returns a Writer of an event file in directory dir, which it makes if needed.
// TensorBoard shows each value as a curve:
//
//	tensorboard --logdir DIR
func NewTensorBoard(dir string) (_ Writer, err error) {
	defer fault.Locate(&err)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("metrics: NewTensorBoard: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	now := time.Now()
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", now.Unix(), host, os.Getpid(), now.Nanosecond())
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, fmt.Errorf("metrics: NewTensorBoard: %w", err)
	}
	t := &tensorBoard{f, time.Now}
	return t, t.record(appendBytes(t.event(0), 3, []byte("brain.Event:2")))
}

// An event file is a sequence of records (TensorFlow's TFRecord): the length of the event as
// uint64, the checksum of that, the event, its checksum. An event is a protocol buffer:
//
//	message Event   { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
//	message Summary { repeated Value value = 1; }
//	message Value   { string tag = 1; float simple_value = 2; }
type tensorBoard struct {
	w   io.WriteCloser
	now func() time.Time
}

func (t *tensorBoard) Write(step int, values ...Value) error {
	var summary []byte
	for _, v := range values {
		value := append(appendBytes(nil, 1, []byte(v.Name)), 2<<3|5)
		value = binary.LittleEndian.AppendUint32(value, math.Float32bits(float32(v.Value)))
		summary = appendBytes(summary, 1, value)
	}
	return t.record(appendBytes(t.event(step), 5, summary))
}

func (t *tensorBoard) Close() error { return t.w.Close() }

// event begins an event with the present time and a step.
func (t *tensorBoard) event(step int) []byte {
	e := binary.LittleEndian.AppendUint64([]byte{1<<3 | 1}, math.Float64bits(float64(t.now().UnixNano())/1e9))
	return binary.AppendUvarint(append(e, 2<<3), uint64(step))
}

// appendBytes appends a field of bytes.
func appendBytes(to []byte, field int, value []byte) []byte {
	return append(binary.AppendUvarint(append(to, byte(field<<3|2)), uint64(len(value))), value...)
}

// record writes one record, in one call so that a reader never sees half of it.
func (t *tensorBoard) record(event []byte) error {
	r := binary.LittleEndian.AppendUint64(nil, uint64(len(event)))
	r = binary.LittleEndian.AppendUint32(r, masked(r))
	r = append(r, event...)
	_, err := t.w.Write(binary.LittleEndian.AppendUint32(r, masked(event)))
	return err
}

// masked returns the checksum of TFRecord: a CRC-32C, rotated and with a constant added, because
// a CRC of data that contains its own CRC is weak.
func masked(data []byte) uint32 {
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (sum>>15 | sum<<17) + 0xa282ead8
}
