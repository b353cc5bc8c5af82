# The versions of the linters that CI uses stand in .ci/run.
staticcheck := $(shell sed -n 's/^staticcheck=//p' .ci/run)
golangci    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

PKG  = ./...
RUN  = .
FOR  = 1m
TIME = 2s

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: quick
quick: PKG = ./lock
quick: ## One package on the embedded server, in seconds (PKG=./rwlock RUN=TestTry)
	go test -short -run '$(RUN)' $(PKG)

.PHONY: test
test: ## All tests, on real servers too if this machine has any (PKG, RUN)
	go test -run '$(RUN)' $(PKG)

.PHONY: race
race: export GORACE = suppressions=$(CURDIR)/.ci/known-races
race: ## All tests with the race detector (PKG, RUN)
	go test -race -timeout 20m -run '$(RUN)' $(PKG)

.PHONY: real
real: export ZKRECIPES_REQUIRE_REAL = 1
real: RUN = /^real$$
real: ## The tests on a real server, which must be there (PKG, RUN)
	go test -run '$(RUN)' $(PKG)

.PHONY: ensemble
ensemble: export ZKRECIPES_REQUIRE_REAL = 1
ensemble: ## The tests of all recipes on an ensemble of three, in minutes (RUN=Suite: only what all locks share)
	go test -count=1 -timeout 20m -run '$(RUN)' ./internal/suite -ensemble

.PHONY: mutate
mutate: FOR = 10m
mutate: ## Make mutants of the code by rule, and expect tests to fail (RUN=lock/ FOR=0: all of lock's)
	go run ./internal/mutation/generated -run '$(RUN)' -for '$(FOR)'

.PHONY: mutations
mutations: ## Take one listed protection after the other out of the code, and expect its test to fail (RUN=trust)
	go run ./internal/mutation -run '$(RUN)'

.PHONY: sim
sim: PKG = ./recipestest/sim
sim: RUN = Sim
sim: ## Simulate with seeds that were never played before (PKG, RUN=SimQueue FOR=1h)
	go test -timeout 0 -run '$(RUN)' $(PKG) -sim.for=$(FOR)

.PHONY: fuzz
fuzz: ## Fuzz one target (PKG=./recipestest/embedded RUN=FuzzTree FOR=10m)
	go test -run '^$$' -fuzz '^$(RUN)$$' -fuzztime $(FOR) $(PKG)

.PHONY: bench
bench: ## Measure the recipes beside other libraries, in minutes (RUN=lock/ TIME=50ms)
	go run -C bench . -run '$(RUN)' -time $(TIME)

.PHONY: lint
lint: ## All linters; the first run builds golangci-lint, which takes minutes
	test -z "$$(gofmt -l .)"
	go vet ./...
	go -C bench vet ./...
	go -C cmd/zkr vet ./...
	go -C otel vet ./...
	go run $(staticcheck) ./...
	go run $(golangci) run

.PHONY: api
api: ## Record the exported API in directory api, and the licences in docs/licences.md
	go test -count=1 -run 'TestExportedAPIIsAsRecorded|TestLicencesAreListed' . -record

.PHONY: apidiff
apidiff: BASE = HEAD
apidiff: ## Print which changes of the API since BASE break programs (BASE=v0.1.0)
	.ci/apidiff $(BASE)

.PHONY: ci
ci: ## All that a change has to pass, as root on Debian: it installs packages
	.ci/run
