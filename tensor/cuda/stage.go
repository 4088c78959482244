package cuda

import (
	"slices"
	"sync"
	"unsafe"
)

// memoryMap holds the address ranges of the device's memory.
type memoryMap struct {
	mu     sync.RWMutex
	starts []uintptr // ascending
	ends   []uintptr
}

func (m *memoryMap) add(p unsafe.Pointer, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, _ := slices.BinarySearch(m.starts, uintptr(p))
	m.starts = slices.Insert(m.starts, i, uintptr(p))
	m.ends = slices.Insert(m.ends, i, uintptr(p)+uintptr(bytes))
}

func (m *memoryMap) remove(p unsafe.Pointer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i, ok := slices.BinarySearch(m.starts, uintptr(p)); ok {
		m.starts, m.ends = slices.Delete(m.starts, i, i+1), slices.Delete(m.ends, i, i+1)
	}
}

func (m *memoryMap) holds(p unsafe.Pointer) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	i, ok := slices.BinarySearch(m.starts, uintptr(p))
	return ok || i > 0 && uintptr(p) < m.ends[i-1]
}

// A Stage copies between a device and the host for collectives, beside the stream
// on which the device computes. It may be used from any goroutine.
type Stage struct {
	g *Device

	mu    sync.Mutex
	spare []lane

	folder folder
}

// A lane is a stream, with an event for other streams to wait for.
type lane struct {
	stream, event uintptr
	busy          bool // something was queued since the last wait
}

// Stage returns a Stage of the device.
func (g *Device) Stage() *Stage { return &Stage{g: g} }

// Holds reports whether p is an address of the device.
func (s *Stage) Holds(p unsafe.Pointer) bool { return s.g.memories.holds(p) }

// Pin locks host memory, so that the device copies it at full speed and while it
// computes. If the driver refuses, copies are only slower.
func (s *Stage) Pin(p unsafe.Pointer, bytes int) error {
	defer s.g.enter()()
	return s.check(cuMemHostRegister, uintptr(p), uintptr(bytes), 0)
}

// Unpin ends Pin.
func (s *Stage) Unpin(p unsafe.Pointer, _ int) {
	defer s.g.enter()()
	s.g.drv.call(cuMemHostUnregister, uintptr(p))
}

// Enter makes the device's context current and locks the goroutine to its thread, until
// leave is called.
func (s *Stage) Enter() (leave func()) { return s.g.enter() }

// Copies are the copies of one collective, on lanes that do not wait for each other.
type Copies struct {
	s     *Stage
	lanes []lane
}

// Open returns n lanes, whose copies wait for the work queued on the device before.
func (s *Stage) Open(n int) (*Copies, error) {
	c := &Copies{s: s}
	defer s.g.enter()()
	for range n {
		l, err := s.lane()
		if err != nil {
			return nil, err
		}
		c.lanes = append(c.lanes, l)
	}
	before := c.lanes[0].event
	if err := s.check(cuEventRecord, before, s.g.stream); err != nil {
		return nil, err
	}
	for _, l := range c.lanes {
		if err := s.check(cuStreamWaitEvent, l.stream, before, 0); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// lane returns a spare lane or makes one.
func (s *Stage) lane() (l lane, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.spare); n > 0 {
		l, s.spare = s.spare[n-1], s.spare[:n-1]
		return l, nil
	}
	if err := s.check(cuStreamCreate, uintptr(unsafe.Pointer(&l.stream)), streamNonBlocking); err != nil {
		return l, err
	}
	const disableTiming = 2 // CU_EVENT_DISABLE_TIMING
	return l, s.check(cuEventCreate, uintptr(unsafe.Pointer(&l.event)), disableTiming)
}

// check makes a call in the context that is current.
//
//go:uintptrescapes
func (s *Stage) check(f function, args ...uintptr) error {
	if code := s.g.drv.call(f, args...); code != success {
		return s.g.failure(f, code)
	}
	return nil
}

// ToHost queues a copy to the host.
func (c *Copies) ToHost(i int, dst, src unsafe.Pointer, bytes int) error {
	return c.queue(cuMemcpyDtoHAsync, i, dst, src, bytes)
}

// FromHost queues a copy to the device.
func (c *Copies) FromHost(i int, dst, src unsafe.Pointer, bytes int) error {
	if bytes < engineBytes && bytes%2 == 0 {
		r := rectangle{srcType: hostMemory, srcHost: uintptr(src), dstType: deviceMemory, dstDevice: uintptr(dst)}
		return c.halves(i, &r, bytes)
	}
	return c.queue(cuMemcpyHtoDAsync, i, dst, src, bytes)
}

// Within queues a copy within the device.
func (c *Copies) Within(i int, dst, src unsafe.Pointer, bytes int) error {
	return c.queue(cuMemcpyDtoDAsync, i, dst, src, bytes)
}

func (c *Copies) queue(f function, i int, dst, src unsafe.Pointer, bytes int) error {
	defer c.s.g.enter()()
	c.lanes[i].busy = true
	return c.s.check(f, uintptr(dst), uintptr(src), uintptr(bytes), c.lanes[i].stream)
}

// The driver has the multiprocessors copy less than engineBytes from the host (seen on an
// H100, for 24 KiB but not for 32). There processes that share the GPU take turns, a
// quarter of a millisecond each. A copy of a rectangle goes to a copy engine instead.
const engineBytes = 32 << 10

// rectangle is a CUDA_MEMCPY2D.
type rectangle struct {
	_, _                         uintptr // srcXInBytes, srcY
	srcType                      uintptr // a CUmemorytype, and what fills a word
	srcHost, srcDevice, srcArray uintptr
	srcPitch                     uintptr
	_, _                         uintptr // dstXInBytes, dstY
	dstType                      uintptr
	dstHost, dstDevice, dstArray uintptr
	dstPitch                     uintptr
	width, height                uintptr
}

// Types of memory.
const (
	hostMemory   = 1 // CU_MEMORYTYPE_HOST
	deviceMemory = 2 // CU_MEMORYTYPE_DEVICE
)

// halves queues a copy as a rectangle of two rows.
func (c *Copies) halves(i int, r *rectangle, bytes int) error {
	defer c.s.g.enter()()
	c.lanes[i].busy = true
	r.width, r.height = uintptr(bytes/2), 2
	r.srcPitch, r.dstPitch = r.width, r.width
	return c.s.check(cuMemcpy2DAsync, uintptr(unsafe.Pointer(r)), c.lanes[i].stream)
}

// Wait waits for all copies of lane i.
func (c *Copies) Wait(i int) error {
	defer c.s.g.enter()()
	c.lanes[i].busy = false
	return c.s.check(cuStreamSynchronize, c.lanes[i].stream)
}

// Close waits for the busy lanes and gives all lanes back.
func (c *Copies) Close() error {
	var err error
	for i, l := range c.lanes {
		if l.busy {
			if late := c.Wait(i); err == nil {
				err = late
			}
		}
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.spare = append(c.s.spare, c.lanes...)
	return err
}
