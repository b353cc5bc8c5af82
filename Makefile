golangci := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

PKG     = ./...
RUN     = .
FOR     = 1m
TIME    = 2s
MEMBERS = 1

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: quick
quick: PKG = ./lock
quick: ## One package on the embedded server, in seconds (PKG=./rwlock RUN=TestTry)
	go test -short -run '$(RUN)' $(PKG)

.PHONY: test
test: ## All tests that need nothing but Go (PKG, RUN)
	go test -run '$(RUN)' $(PKG)

.PHONY: race
race: export GORACE = suppressions=$(CURDIR)/.ci/known-races
race: ## The same, with the race detector (PKG, RUN)
	go test -race -timeout 20m -run '$(RUN)' $(PKG)

.PHONY: real
real: PKG = ./lock
real: ## The tests of one package on a real ZooKeeper (PKG, MEMBERS=3)
	go run ./internal/real/serve -members $(MEMBERS) go test -count=1 -run '/^real$$|Locks?$$///^real$$' $(PKG)

.PHONY: mutate
mutate: FOR = 10m
mutate: ## Make mutants of the code by rule, and list those that no test notices (RUN=^lock FOR=0: all of lock's)
	go run ./internal/real/mutants -run '$(RUN)' -for '$(FOR)'

.PHONY: planted
planted: ## Plant one listed bug after the other in the code, and expect its test to fail (RUN=watch)
	go run ./internal/real/mutants -planted -run '$(RUN)' -for 0

.PHONY: sim
sim: PKG = ./recipestest/sim
sim: RUN = Sim
sim: ## Simulate with seeds that were never played before (PKG, RUN=SimQueue FOR=1h)
	go test -timeout 0 -run '$(RUN)' $(PKG) -sim.for=$(FOR)

.PHONY: fuzz
fuzz: ## Fuzz one target (PKG=./recipestest/embedded RUN=FuzzRequest FOR=10m)
	go test -run '^$$' -fuzz '^$(RUN)$$' -fuzztime $(FOR) $(PKG)

.PHONY: bench
bench: ## Measure the recipes beside other libraries, in minutes (RUN=lock/ TIME=50ms)
	go run -C bench . -run '$(RUN)' -time $(TIME)

.PHONY: lint
lint: ## All linters; the first run builds golangci-lint, which takes minutes
	.ci/run lint
	go run $(golangci) run

.PHONY: tidy
tidy: ## Run go mod tidy in each module
	.ci/modules tidy

.PHONY: api
api: ## Record the exported API in directory api, and the licences in NOTICE.md
	go test -count=1 -run 'TestExportedAPIIsAsRecorded|TestLicencesAreListed' . -record

.PHONY: apidiff
apidiff: BASE = HEAD
apidiff: ## Print which changes of the API since BASE break programs (BASE=v0.1.0)
	.ci/apidiff $(BASE)

.PHONY: ci
ci: ## What a change has to pass, on Debian (STAGE=lint: a stage of .ci/run)
	.ci/run $(STAGE)
