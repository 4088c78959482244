//go:build !linux || nolibs

package cuda

import "errors"

func open([]string, []string) (string, []uintptr, error) {
	return "", nil, errors.New("this program was built without CUDA, with the tag nolibs or for another system than Linux; " +
		"build it for Linux without the tag")
}

//go:uintptrescapes
func syscall(uintptr, ...uintptr) int32 { return 1 }

func driverNames() []string { return nil }
