# Everything below sets itself up: Go, gcc (for the race detector), make and git are enough.

ENDPOINT    ?= 127.0.0.1:8889
CONFIG      ?= config.yaml
RUN_SECONDS ?= 0
FUZZTIME    ?= 10s
HISTORIES   ?= 11000
BENCHTIME   ?= 1s
BENCH       ?= .
IMAGE       ?= otelcol-energy:0.1.0-dev
IMAGE_GPU   ?= otelcol-energy-gpu:0.1.0-dev
export CA_BUNDLE

COLLECTOR := build/otelcol-energy
KUBERNETES_COLLECTOR := build/kubernetes/otelcol-energy
GPU_COLLECTOR := build/gpu/otelcol-energy
PROFILES_COLLECTOR := build/profiles/otelcol-energy
ENERGY    := build/energy
GPU_ENERGY := build/gpu/energy
LOG       := build/otelcol-energy.log

# Modules of the checkout, the receiver first. The tools' modules, which go.work does not list, hold no code.
MODULES := $(shell sed -n 's#^	\./##p; s#^	\.$$#.#p' go.work)

# Ignore a workspace or version control that surrounds the checkout.
export GOWORK := $(CURDIR)/go.work
export GOFLAGS := $(strip $(shell go env GOFLAGS 2>/dev/null) -buildvcs=false)

# Modules outside of the workspace: the tools, and what the collector builder writes.
TOOLS := $(CURDIR)/build/tools
BUILD_TOOLS = GOWORK=off go -C $(1) build -o $(TOOLS)/ tool

# All files that programs are built from, of which the collectors do not have those of the command line.
SOURCES := $(shell find . -type d \( -name '.?*' -o -name build -o -name dist -o -name dev -o -name deploy -o -name test -o -name testdata \) -prune -o \
	\( -name '*.go' -o -name 'go.*' -o -name '*.o' -o -name '*.csv' -o -path '*/web/page/*' \) -not -name '*_test.go' -type f -print)
COLLECTOR_SOURCES := $(filter-out ./cmd/%,$(SOURCES))

.DEFAULT_GOAL := help
.PHONY: help run build build-kubernetes build-gpu build-profiles image image-gpu check-deploy test browser integration nightly stores scale generate generate-bpf check-generate lint tidy bench cost accuracy judge replay specification soak fuzz clean

# Targets whose comment has a single # are not listed. Pages of dev/ describe them.
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## run the collector and show the top consumers until Ctrl-C (RUN_SECONDS=20 ends it)
	@test -w $(LOG) || rm -f $(LOG) # root's, of a run with sudo
	@for c in /sys/class/powercap/*/energy_uj; do if test -e $$c && ! test -r $$c; then \
		echo "Only root may read this machine's energy counters, so nothing is measured: try sudo make run, or grant it as docs/permissions.md says."; \
		break; fi; done
	@echo "The collector runs with $(CONFIG) and serves http://$(ENDPOINT)/metrics; its log is $(LOG). Ctrl-C ends it."
	@ENERGY_PROMETHEUS_ENDPOINT=$(ENDPOINT) $(COLLECTOR) --config $(CONFIG) >$(LOG) 2>&1 & pid=$$!; trap 'kill $$pid 2>/dev/null; wait $$pid' EXIT; trap 'exit 130' INT TERM; \
		while kill -0 $$pid && $(ENERGY) top --endpoint http://$(ENDPOINT)/metrics --once --wait 0s 2>&1 | grep -q "no process listens"; do sleep 0.1; done 2>/dev/null; \
		kill -0 $$pid 2>/dev/null && $(ENERGY) top --endpoint http://$(ENDPOINT)/metrics --for $(RUN_SECONDS)s $(TOP_FLAGS) && kill -0 $$pid || { tail -n 20 $(LOG) >&2; exit 1; }

build: $(COLLECTOR) $(ENERGY) ## build the collector and energy (build/otelcol-energy, build/energy)

# Fails if a collector is not one static file.
STATIC = ! ldd $@ >/dev/null 2>&1 || { echo "$@ needs shared libraries, but must be static" >&2; rm $@; exit 1; }

# What is built already needs no Go, which sudo often does not find.
NEED_GO = command -v go >/dev/null || { echo "go was not found, so $@ cannot be built. Run make build first, without sudo." >&2; exit 1; }

$(KUBERNETES_COLLECTOR) $(GPU_COLLECTOR) $(PROFILES_COLLECTOR): deploy/builder-config-kubernetes.yaml
$(GPU_COLLECTOR): deploy/builder-config-gpu.yaml
# Uses committed versions and sums (make tidy), because the builder would also download modules for the profiler's tests.
$(PROFILES_COLLECTOR): $(addprefix deploy/builder-config-profiles,.yaml .mod .sum)

$(COLLECTOR) $(KUBERNETES_COLLECTOR) $(GPU_COLLECTOR) $(PROFILES_COLLECTOR): builder-config.yaml $(COLLECTOR_SOURCES)
	@$(NEED_GO)
	@test -e $(@D)/go.sum && echo "Building $@" || echo "Building $@; the first time, this takes some minutes"
	@mkdir -p $(@D)
	@go run ./deploy/collector -out $(@D) $(patsubst build,default,$(notdir $(@D))) \
		>$(@D)/builder.log 2>&1 || { cat $(@D)/builder.log >&2; exit 1; }
	@$(if $(filter $(GPU_COLLECTOR),$@),,$(STATIC))
	@touch $@

$(ENERGY): $(SOURCES)
$(GPU_ENERGY): $(SOURCES)
$(ENERGY) $(GPU_ENERGY):
	@$(NEED_GO)
	@mkdir -p $(@D)
	@CGO_ENABLED=0 go -C cmd/energy build $(if $(filter $(GPU_ENERGY),$@),-tags nvml) -trimpath -ldflags "-s -w" -o ../../$@ .
	@touch $@

build-kubernetes: $(KUBERNETES_COLLECTOR) ## build the collector for Kubernetes, and for Kepler's and Scaphandre's metrics (build/kubernetes/otelcol-energy)

build-gpu: $(GPU_COLLECTOR) $(GPU_ENERGY) ## build the collector and energy that read NVIDIA GPUs (build/gpu/otelcol-energy, build/gpu/energy)

build-profiles: $(PROFILES_COLLECTOR) ## build the collector with energy of code (build/profiles/otelcol-energy; docs/code.md)

check-deploy: build build-kubernetes build-gpu # check the files of deploy/ with the installed tools that read them
	@deploy/check.sh

# dev/release/image writes the image of a collector as an archive, without Docker.
IMAGE_OF = GOWORK=off go -C dev/release run ./image -title $(1) -program $(2) -tag $(3) -out build/$(1).tar && \
	docker load --input build/$(1).tar

image: build-kubernetes ## build the image otelcol-energy:0.1.0-dev and load it into docker (CA_BUNDLE: the certificates that it trusts)
	@$(call IMAGE_OF,otelcol-energy,$(KUBERNETES_COLLECTOR),$(IMAGE))

image-gpu: build-gpu ## build the image otelcol-energy-gpu:0.1.0-dev and load it into docker, with glibc of this machine
	@$(call IMAGE_OF,otelcol-energy-gpu,$(GPU_COLLECTOR),$(IMAGE_GPU))

# Packages without goroutines, whose simulations and fits take three times as long with the race detector.
ONE_GOROUTINE = energyreceiver/\(internal/attribution\|internal/ledger\|cmd/energy/internal/model\)

test: ## run all tests that need Go only, with the race detector if there is a C compiler; make nightly runs longer simulations
	@set -e; race=-race; \
	if [ "$$(go env CGO_ENABLED)" != 1 ] || ! command -v $$(go env CC) >/dev/null; then \
		why="the race detector needs a C compiler, and $$(go env CC) was not found or cgo is off"; \
		if [ "$$CI" = true ]; then echo "$$why" >&2; exit 1; fi; \
		echo "Without the race detector: $$why"; race=; \
	fi; \
	for m in $(MODULES); do \
		plain=$$(go -C $$m list ./... | grep '$(ONE_GOROUTINE)') && { echo "go test -short ($$m)"; go -C $$m test -short -timeout 60m $$plain; }; \
		echo "go test -short $$race ($$m)"; go -C $$m test -short $$race -timeout 60m $$(go -C $$m list ./... | grep -v '$(ONE_GOROUTINE)'); done

PICTURES ?=

browser: $(ENERGY) # test the pages of energy in Chromium (RUN=pattern; PICTURES=DIR writes screenshots; dev/integration.md)
	@$(if $(RUN),,receiver/test/browser/axe.sh)
	go test ./receiver/test/browser -count 1 -v -timeout 20m -run '$(RUN)' -browser.energy '$(CURDIR)/$(ENERGY)' \
		-browser.axe '$(CURDIR)/build/browser/axe.min.js' -browser.pictures '$(if $(PICTURES),$(abspath $(PICTURES)))'

integration: build build-kubernetes ## test the collector with a real RAPL driver, Docker, libvirt and Prometheus (RUN=Kubernetes: with a real API server and kubelet; RUN=TestAttack: with hostile processes; root, apt; dev/integration.md)
	@receiver/test/integration/$(if $(findstring Kubernetes,$(RUN)),kubernetes,run).sh

nightly: ## run all checks that .ci/run leaves out because they take long (root, apt; dev/integration.md)
	@.ci/nightly

STORES   ?= all
VARIANTS ?= three restarts
PROGRAMS ?=

stores: build # test each available database with an hour of churn and with monthly reports (STORES=Prometheus)
	@receiver/test/stores/build.sh $(PROGRAMS)
	go test ./receiver/test/stores -run '^Test(Stores|Months)' -count 1 -v -timeout 30m -stores '$(STORES)' -stores.variants '$(VARIANTS)'

SCALE ?= -balancers 0 -processes 30 -containers 10 -births 4 -rounds 9 -kill gateway@25s,store@50s

scale: build # send 200 simulated nodes through gateways into three Mimirs, kill some, and compare (SCALE=flags; docs/production.md)
	@receiver/test/stores/build.sh mimir
	go run ./receiver/test/scale -to mimir $(SCALE)

generate: ## write the generated files
	@internal/tools/versions.sh
	@deploy/chart/render.sh
	@$(call BUILD_TOOLS,internal/tools)
	@set -e; for m in $(MODULES); do PATH="$(TOOLS):$$PATH" go -C $$m generate -skip bpf2go ./...; done

generate-bpf: # compile the BPF programs (needs clang and libbpf-dev; BPF2GO_CC names the compiler)
	@$(call BUILD_TOOLS,internal/tools)
	PATH="$(TOOLS):$$PATH" go generate -run bpf2go ./...

check-generate: # fail if `make generate` would change a file
	@internal/tools/check-generate.sh

# Systems other than this one: together they have the files that are not Linux's, 32 bits and another architecture.
SYSTEMS ?= GOARCH=arm64 GOOS=windows,GOARCH=386

# golangci-lint vets for this system.
.PHONY: vet
vet: ## go vet for each of SYSTEMS
	@set -e; for system in $(SYSTEMS); do echo "go vet ($$system)"; \
		for m in $(filter-out cmd/% receiver/test,$(MODULES)); do env CGO_ENABLED=0 $$(echo $$system | tr , ' ') go -C $$m vet ./...; done; done

lint: vet ## gofmt, go mod tidy, golangci-lint, go vet for other systems, and the language of pages and code
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')) && test -z "$$unformatted" || \
		{ echo "gofmt would change:" $$unformatted "(gofmt -w does it)" >&2; exit 1; }
	@$(call BUILD_TOOLS,internal/tools/lint)
	@set -e; for m in $(MODULES); do echo "go mod tidy, golangci-lint ($$m)"; internal/tools/tidy.sh $$m -diff; \
		(cd $$m && $(TOOLS)/golangci-lint run --config=$(CURDIR)/.golangci.yml ./...); done
	@echo "vale, misspell (pages)"; pages=$$(git ls-files --cached --others --exclude-standard '*.md' | grep -v documentation.md); \
		GOWORK=off go tool -modfile=internal/tools/docs/go.mod vale --config internal/tools/docs/vale.ini --output=line $$pages && \
		GOWORK=off go tool -modfile=internal/tools/docs/go.mod misspell -error -locale US -i modelling $$pages
	@echo "vale (comments and messages in code)"; go run ./receiver/test/language

tidy: ## write the collector's version into all files that name it, and go.mod and go.sum of all modules
	@internal/tools/versions.sh
	@GOWORK=off go -C internal/tools mod tidy
	@set -e; for m in $(MODULES); do internal/tools/tidy.sh $$m; done
	@internal/tools/tidy-profiles.sh

bench: build ## run the benchmarks that BENCH matches (default all)
	go test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -timeout 60m ./...

SCENARIOS ?= reach
TURNS     ?= 2
BASE      ?=
KEPLER    ?=

# receiver/test/cost -h lists the scenarios. With SCENARIOS= the machine and the variants are those of FLAGS.
cost: build ## measure what whole processes cost, in turn, beside thousands of others (root; SCENARIOS=start TURNS=5 BASE=<commit> KEPLER=<path>)
	go build -o build/cost ./receiver/test/cost
	build/cost -scenarios '$(SCENARIOS)' -turns $(TURNS) -base '$(BASE)' -kepler '$(KEPLER)' $(FLAGS)

accuracy: ## measure the error of attributed energy on simulated machines, and of models; write dev/results and docs/accuracy.md
	go -C receiver/test/accuracy run .
	go test ./internal/power/model/catalog -run LeaveOneOut -count 1 -accuracy.write

judge: $(if $(KEPLER),$(COLLECTOR)) # run Kepler and the collector on the files of simulated machines (KEPLER=PATH); write docs/accuracy.md
	@test -x "$(KEPLER)" || { echo "KEPLER=PATH is a binary of Kepler: run go build -o PATH ./cmd/kepler in a checkout of github.com/sustainable-computing-io/kepler" >&2; exit 1; }
	go -C receiver/test/accuracy run . -test.run judge -test.parallel 9 -kepler '$(abspath $(KEPLER))' -collector '$(CURDIR)/$(COLLECTOR)'

replay: # replay published measurements of real machines (TRACES=DIR); write dev/results/replay-*.csv
	@test -d "$(TRACES)" || { echo "TRACES=DIR is a directory with the series that dev/replay.md lists" >&2; exit 1; }
	go test ./receiver/test/replay -run '^TestTable' -count 1 -v -traces '$(abspath $(TRACES))' -write

specification: # run the tests of dev/specification.yaml (SHORT=1 installs nothing; root)
	go run ./receiver/test/specification

soak: # run the accuracy simulator's tests, and simulate a million intervals with faults (HISTORIES sets how many histories of a hundred)
	go test ./receiver/test/accuracy ./internal/usage/cpu -count 1 -timeout 60m
	go test ./receiver -run '^Test(NothingIsLostWhateverHappens|MemoryIsFlatUnderAThousandBirthsASecond|GuestsHaveWhatTheirHostAttributedToThem)$$' \
		-count 1 -v -timeout 120m -sim.histories $(HISTORIES) -sim.seconds 600 -guests.histories 100
	go test ./internal/ledger -run '^TestEngineAgreesWithTheOracleWhateverHappens$$' -count 1 -v \
		-oracle.histories 5000 -oracle.events 1000
	go test ./internal/power -count 1 -timeout 60m -other.histories 1000

fuzz: # fuzz every fuzz target for FUZZTIME
	@set -e; for m in $(MODULES); do for package in $$(go -C $$m list ./...); do \
		for target in $$(go -C $$m test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; go -C $$m test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done; done

include dev/release/release.mk

clean: ## remove what was built
	rm -rf build dist
