# gorun: SPMD in Go. Plain `make` lists the targets.

GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# What the tests start beside Go itself: a C compiler, for the race detector and the
# backends that link Open MPI; both MPI libraries with their launchers, whose names
# in PATH Debian's alternatives give to Open MPI; Slurm; hosts that are network
# namespaces; an emulator of arm64. Open MPI 5 comes beside the 4 of Debian 12, see .ci/openmpi5.sh.
DEBS := gcc g++ libc6-dev libopenmpi-dev pkg-config openmpi-bin mpich \
	slurm-wlm munge openssh-server openssh-client iproute2 procps chromium qemu-user

.PHONY: help build train train-long recsys test linked race test-arm64 test-full test-gpu verify generate \
	bench bench-gemm bench-kernels bench-conv bench-ops bench-redistribute bench-step bench-comm bench-embedding \
	bench-loss bench-ranks bench-gpu deps deps-ptx rename clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/gorun
	$(GO) build -o bin/gorun ./cmd/gorun

train: build ## train the language model of examples/train on 4 ranks (3 minutes)
	bin/gorun -np 4 ./examples/train

train-long: build ## the same for 15 minutes
	bin/gorun -np 4 ./examples/train -minutes 15

recsys: build ## train the click model of examples/recsys on 4 ranks (half a minute)
	bin/gorun -np 4 ./examples/recsys

# The ranks of these packages' tests take all cores in turns: beside other tests both would take several times as long. What
# they leave goes to the compiler of what the race detector tries.
ALONE := comm/mpi comm/shm internal/conformance
# The tests of these packages take longest, and most wait more than they compute: they are started first, and others run
# beside them. Programs are compiled and linked without symbols for debuggers, which take half of the linker's time and an
# eighth of the compiler's, and which no test reads.
# What verify has vetted is not vetted again.
LONGEST := dtensor internal/cluster examples/recsys examples/train examples docs launcher runtime
TEST := $(GO) test -vet=off
test: export GOFLAGS := $(shell $(GO) env GOFLAGS) -ldflags=-w -gcflags=all=-dwarf=false
test: verify build ## everything: verify, tests, tests under the race detector
	$(TEST) -p 4 -parallel 3 -timeout 20m $(LONGEST:%=./%) $$($(GO) list ./... | grep -v $(ALONE:%=-e '/%$$'))
	$(MAKE) --no-print-directory -j 2 alone race-compiled
	$(MAKE) --no-print-directory linked race test-arm64

.PHONY: alone race-compiled
alone:
	$(TEST) -p 1 -timeout 15m $(ALONE:%=./%)
race-compiled:
	@if command -v $${CC:-gcc} >/dev/null; then nice -n 19 $(GO) list -export -test -race $(RACED) >/dev/null; fi

linked: ## the backends that link an MPI library when they are built
	@if command -v $${CC:-gcc} >/dev/null && pkg-config --exists ompi; then :; \
	elif [ "$$CI" = true ]; then echo 'gompi and empi need Open MPI to link with: run make deps' >&2; exit 1; \
	else echo 'skipped: gompi and empi need Open MPI to link with (make deps)'; exit 0; fi; \
	for b in gompi,gompi empi,empi,mpi; do \
		echo "$(TEST) -tags $${b#*,} ./comm/$${b%%,*}"; \
		$(GO) vet -tags $${b#*,} ./comm/$${b%%,*} && $(GO) run $(STATICCHECK) -tags $${b#*,} ./comm/$${b%%,*} && \
		$(TEST) -tags $${b#*,} ./comm/$${b%%,*} || exit 1; \
	done; \
	$(TEST) -tags empi ./comm/empi
	$(GO) vet -tags gompi,empi,mpi ./runtime

# Packages that are not tried with the race detector: those whose tests start programs that they build without it, and
# the serial ones, which start no goroutine and share no memory but through the packages below them: a test looks.
STARTERS := examples examples/.* docs bench/.* cmd/.* internal/cluster internal/conformance internal/deps
SERIAL := loss nn optim dtensor/layout dtensor/visualize metrics/.* checkpoint/safetensors data/tokenizer tensor/kernel internal/conformance/suite \
	internal/dynamictest internal/simd internal/pairwise internal/deadlock internal/dtype internal/fault internal/forecast internal/job \
	internal/keytable internal/philox launcher/options launcher/phrase launcher/proc launcher/terminal
# Tests that are not tried with it either, because their goroutines share nothing that others' do not. The first compute
# on one goroutine: kernels of each instruction set, beside plain sums; an operator on one rank, its gradient, and one
# that a device lacks; which rows a store keeps; how fast kernels are, and a plan by that, by a stopwatch of which ranks
# share what TestStopwatch tries. Those of the last three lines are of 16 bits and go the ways of float32, which is tried.
ARITHMETIC := GemmEqualsTheSums GemmOverSeveralBlocks HalvesHaveTheBitsOfTheirFloats PairwiseProducts PairsAreNearTheSums \
	PairsOfSpecialNumbers PartsOfAProductOfHalves OperatorsHaveTheBitsOfEveryInstructionSet OperatorsFiniteDifferences \
	OperatorsOfFloat16 StoreKeepsTheMostUsedRows RatesOfThisMachine PlanIsKept MatMulGrad MissingOperators \
	NarrowArithmetic NarrowAttention NarrowIsRoundedOnce NarrowSum OperatorsOfBFloat16 BFloat16GradientsAddUp \
	SecondDerivativesOfBFloat16 SecondDerivativesHaveTheSameBits \
	BFloat16Products BFloat16Attention BFloat16AttentionGrad
# Of the others these take longest: the first two wait. The last to start would end alone.
LONGEST_RACE := runtime launcher dtensor embedding train tensor/cuda tensor internal/gemm
space := $(subst ,, )
either = $(subst $(space),|,$(strip $(1)))
RACED = $$($(GO) list ./... | grep -vxE '[^/]*/[^/]*/gorun/($(call either,$(ALONE) $(STARTERS) $(SERIAL)))')
RACE := $(TEST) -race -short -skip '^Test($(call either,$(ARITHMETIC)))$$'
race:
	@if command -v $${CC:-gcc} >/dev/null; then echo '$(TEST) -race -short'; \
		$(RACE) -p 4 -timeout 20m $(LONGEST_RACE:%=./%) $(RACED) && \
		$(RACE) -p 1 $(patsubst %,./%,$(filter-out $(STARTERS),$(ALONE))); \
	elif [ "$$CI" = true ]; then echo 'the race detector needs a C compiler: run make deps' >&2; exit 1; \
	else echo 'skipped: the race detector needs a C compiler (make deps)'; fi

# Under qemu-user a program cannot start another one, as package launcher does, so only those of
# its tests are run that start none, and those of the packages below it. Nor are the tests of
# package dtensor that try every operator, or every way to make a gradient, on every layout and type, or count what
# ranks send in a step, nor that of package tensor that counts memory over a thousand steps: they take minutes there, and
# the processor's own code, the kernels, has tests of its own.
ARM64 := GOARCH=arm64 CGO_ENABLED=0 $(TEST) -timeout 15m -exec qemu-aarch64 -short -tags nolibs
test-arm64: ## kernels, tensors and the launcher's parts on an emulated arm64 processor
	@if command -v qemu-aarch64 >/dev/null; then :; \
	elif [ "$$CI" = true ]; then echo 'the tests for arm64 need qemu-aarch64: run make deps' >&2; exit 1; \
	else echo 'skipped: the tests for arm64 need qemu-aarch64 (make deps)'; exit 0; fi; \
	set -x && $(ARM64) -skip '^TestOperators(OfBFloat16|OfTypes|Sample)?$$|^TestOverlapOfOperators$$|^TestBFloat16GradientsAddUp$$|^TestAccumulateCosts$$|^Test(RecomputedNodes|Nodes|Operators)HaveTheSameBits$$|^TestNodesAreAddedAtOnce$$|^TestSecondDerivatives(OfBFloat16|HaveTheSameBits)?$$|^TestMemoryIsFlatOverSteps$$' -p 4 ./dtensor ./internal/gemm ./tensor ./internal/simd && \
	$(ARM64) -run 'Forecast|Sizes|Share|Plans|Environment|Deal|FirstFailure|HowARank|Version' ./launcher && \
	$(ARM64) $$($(GO) list ./launcher/... | grep -v '/launcher$$')

test-full: ## a million plans for each of three seeds; every operator on every layout, then on random ones for 30 minutes, which prints its seed; plans of 64 ranks; a million messages; a hundred stops under each launcher; 500 failing jobs; 500 faults of elastic ones; a hundred starts of 256 ranks
	for seed in 20261120 1 2; do $(GO) test ./dtensor/layout -run '^TestPlanEqualsItsTwin$$' -timeout 60m -layout.cases 1000000 -layout.seed $$seed || exit; done
	$(GO) test ./dtensor -run '^Test(Operators|Nodes)HaveTheSameBits$$' -timeout 60m -dtensor.full 1s
	$(GO) test ./dtensor -run '^TestOperators(Full)?$$' -v -timeout 120m -dtensor.full 30m
	$(GO) test ./internal/pairwise -pairwise.cases 1000000
	$(GO) test ./examples/train ./examples/recsys -run HasTheSameBits -v -timeout 60m -samebits.full
	$(GO) test ./examples/train ./examples/recsys -run '^TestPlan$$' -v -timeout 10m -plan.many
	$(GO) test ./comm/shm -run '^TestRandomMessages$$' -v -timeout 30m -message.rounds 5000
	$(GO) test ./internal/cluster -run '^Test(Stops|Jobs|Slurm|Faults|Elastic)$$' -v -timeout 150m -cluster.stops 25 -cluster.faults -cluster.harms 4
	$(GO) test ./runtime -run '^TestRandomFaults$$' -v -timeout 30m -faults 500 -faults.seed 0 -faults.within 1s
	for e in train recsys; do $(GO) test ./examples/$$e -run '^TestElasticRunsSurvive$$' -v -timeout 60m -elastic.faults 250 -elastic.seed 0 || exit; done
	$(GO) test ./runtime -run '^TestManyRanksStart$$' -v -timeout 30m -starts 100 -starts.ranks 256
	$(GO) test ./launcher -run '^TestLauncherOfManyIsKilled$$' -v -killed.ranks 512

# The processor and the systems that are not this one's, without cgo. No file is chosen by whether there is cgo, which
# a test in internal/deps holds, so what go vet says of linux/amd64 holds without it.
SYSTEMS := linux/arm64,nolibs darwin/amd64 windows/amd64
# The checkers keep little and allocate much: they collect garbage less often, which saves a fifth of their time.
verify: export GOGC := 400
verify: ## gofmt, vet, staticcheck, generated files
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "not gofmt-ed: $$out" >&2; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) -C internal/crossvet test .
	$(GO) -C internal/crossvet build -o ../../bin/crossvet . && bin/crossvet $(SYSTEMS)
	$(GO) -C internal/simd/asm test .
	cd tensor/cuda && $(GO) run gen.go -verify

generate: ## write the generated files again
	$(GO) generate ./...

bench: bench-gemm bench-kernels bench-conv bench-ops bench-redistribute bench-step bench-comm bench-embedding bench-loss ## all of the following, beside the peers found here

bench-gemm: build ## matrix products, in GFLOP/s of one thread
	$(GO) run ./bench/peers -np 1 gemm

bench-kernels: build ## kernels of one rank
	$(GO) run ./bench/peers -np 1 kernels

bench-conv: build ## convolutions, pooling and BatchNorm of one rank
	$(GO) run ./bench/peers -np 1 conv

bench-ops: build ## what an operator costs beside its arithmetic, on 2 ranks
	$(GO) run ./bench/peers -np 2 ops

bench-redistribute: build ## changes of layout, on 2 ranks
	$(GO) run ./bench/peers -np 2 redistribute

bench-step: build ## a training step, on 1 and 2 ranks
	for n in 1 2; do echo "-np $$n"; $(GO) run ./bench/peers -np $$n step || exit; done

bench-comm: build ## every collective, 8 B to 64 MiB, on 2, 4 and 8 ranks
	for n in 2 4 8; do echo "-np $$n"; $(GO) run ./bench/peers -np $$n comm || exit; done

bench-ranks: build ## start, memory and small collectives of 128 to 1024 ranks
	$(GO) run ./bench/ranks

bench-embedding: build ## sharded lookups, on 2 ranks, and the tables of a DLRM, on 1 and 2 ranks
	$(GO) run ./bench/peers -np 2 embedding
	for n in 1 2; do echo "-np $$n"; $(GO) run ./bench/peers -np $$n dlrm || exit; done

bench-loss: build ## sharded losses, on 2 ranks, and those fused with a product on 1 too
	$(GO) run ./bench/peers -np 2 -match cross-entropy loss
	for n in 1 2; do echo "-np $$n"; $(GO) run ./bench/peers -np $$n -rounds 1 -match linear loss || exit; done

deps: ## install what the tests start, or print how
	@missing=; for p in $(DEBS); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q '^install ok installed' || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then echo 'deps: all there'; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends $$missing; \
	else echo "deps: install these:  sudo apt-get install --no-install-recommends$$missing"; fi
	@if command -v mpirun.openmpi5 >/dev/null; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && . /etc/os-release && [ "$$ID" = debian ]; then .ci/openmpi5.sh; \
	else echo 'deps: as root of a Debian, run .ci/openmpi5.sh: Open MPI 5 beside 4'; fi

deps-ptx: ## install nvcc, which makes tensor/cuda/kernels/*.ptx (Debian's non-free component; 1.6 GB)
	@if command -v nvcc >/dev/null; then echo 'deps-ptx: all there'; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		. /etc/os-release && of=/etc/apt/sources.list.d/*.sources && \
		mirror=$$(awk '$$1 == "URIs:" || $$1 == "deb" { print $$2; exit }' $$of /etc/apt/sources.list 2>/dev/null) && \
		signed=$$(awk '$$1 == "Signed-By:" { print "[signed-by=" $$2 "]"; exit }' $$of 2>/dev/null; true) && \
		echo "deb $$signed $$mirror $$VERSION_CODENAME non-free contrib" >/etc/apt/sources.list.d/gorun-nonfree.list && \
		apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends nvidia-cuda-toolkit; \
	else echo 'deps-ptx: install nvidia-cuda-toolkit 11.8, of the non-free component of Debian'; fi

# A test runs out of memory on purpose; initcheck does not see what cuBLAS writes; and
# racecheck takes minutes for the tests that it is not given.
test-gpu: build ## on a machine with an NVIDIA GPU: kernels, every recorded case, training runs
	GORUN_TEST_GPU=1 $(GO) test -count=1 ./tensor/cuda
	GORUN_TEST_GPU=1 $(GO) test -count=1 -run TestDeviceFolds ./runtime
	GORUN_TEST_GPU=1 $(GO) test -count=1 -run 'OnGPURanks|GPUsThroughMPI' ./internal/conformance
	bin/gorun -np 2 ./examples/train -device cuda -steps 20 -plot ''
	bin/gorun -np 2 ./examples/recsys -device cuda -steps 100
	@if command -v compute-sanitizer >/dev/null; then $(GO) test -c -o bin/cuda.test ./tensor/cuda && cd tensor/cuda && \
	for tool in memcheck initcheck synccheck racecheck; do \
		tests=.; [ $$tool != racecheck ] || tests='BFloat16[^P]|OfMany'; \
		echo "compute-sanitizer --tool $$tool, tests $$tests"; \
		GORUN_CUDA_POOL=0 GORUN_TEST_GPU=1 compute-sanitizer --tool $$tool --report-api-errors no --error-exitcode 1 ../../bin/cuda.test -test.short -test.run "$$tests" -test.skip /cublas || exit 1; \
	done; \
	else echo 'compute-sanitizer is not installed: not run'; fi

bench-gpu: build ## what the kernels reach of a GPU's bandwidth, beside PyTorch where it is installed
	bin/gorun -np 1 ./bench/gpu

rename: ## change the module path everywhere: make rename MODULE=example.org/gorun
	@[ -n "$(MODULE)" ] || { echo 'usage: make rename MODULE=example.org/gorun' >&2; exit 2; }
	old=$$($(GO) list -m) && git ls-files '*.go' '*.mod' '*.md' '*.txtar' | xargs sed -i "s#$$old#$(MODULE)#g"

clean:
	rm -rf bin
