#pragma once
#include <string>

#include "shim.h"

// fake_run carries out a launch of one-dimensional grids and blocks; the result is
// what is wrong, empty if nothing is.
std::string fake_run(const FakeKernel &k, unsigned grid, unsigned block, char *args);

// fake_real returns where device memory really is, nullptr for an address that is
// not n bytes of a live allocation.
char *fake_real(uint64_t address, uint64_t bytes);

