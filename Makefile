# SPDX-License-Identifier: GPL-2.0-only
#
# The front door. Each target sets up what it needs (lab/setup.sh); kernel builds have their own file, Kbuild.

MAKEFLAGS += --no-print-directory
SHELL := /bin/sh
export PYTHONPATH := $(CURDIR)/tool:$(CURDIR)/lab:$(CURDIR)/scripts

# Evaluated when a recipe runs, so `make help` sets up nothing. It takes the place of the shell: signals reach it.
python = [ -e lab/setup.sh ] || { echo 'error: the source archive has no lab, which this needs: use a git checkout' >&2; exit 1; }; \
	python="$$(lab/setup.sh)" && exec "$$python"

TESTS ?= tests
comma := ,

# pytest on several CPUs does not say that a file is missing.
tests_exist = for test in $(if $(filter command line,$(origin TESTS)),$(TESTS)); do [ -e "$${test%%::*}" ] || \
	{ echo "error: TESTS: $${test%%::*} does not exist; tests are in tests/python" >&2; exit 2; }; done

# For another kernel than the one that runs; where to install, and below which folder.
KERNEL_BUILD ?= /lib/modules/$(or $(KERNEL),$(shell uname -r))/build
PREFIX ?= /usr/local

.PHONY: help packages dist modules install uninstall lab matrix test test-long test-cycles test-devices recordings tidy lab-debug sim sim-long mutants litmus coverage scale ageing fuzz native native-engine allocators fit validate clean
.DEFAULT_GOAL := help

help: ## show this list
	@echo "make <target>, where a target is one of"
	@awk -F ':.*## ' '/^# ---- of a checkout/ && "$(wildcard lab)" == "" { exit } /^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@[ ! -e lab ] || echo "Downloads are kept in $${XSMMU_CACHE:-~/.cache/xsmmu} (XSMMU_CACHE names another folder)."

modules: ## build xsmmu.ko and xsmmu_bench.ko for the kernel that runs, by its installed headers [KERNEL=release]
	@$(MAKE) -C '$(KERNEL_BUILD)' M='$(CURDIR)' modules

install: ## install the modules and the tool, which needs Python's click and rich [PREFIX=/usr/local] [DESTDIR=] [KERNEL=]
	@KERNEL='$(KERNEL)' sh tool/install.sh module '$(DESTDIR)' '$(PREFIX)'
	@sh tool/install.sh tool '$(DESTDIR)' '$(PREFIX)'
	@sh tool/install.sh trace '$(DESTDIR)' '$(PREFIX)'

uninstall: ## remove what install has put there, but for rules that were changed [PREFIX=/usr/local] [DESTDIR=] [KERNEL=]
	@KERNEL='$(KERNEL)' sh tool/install.sh uninstall '$(DESTDIR)' '$(PREFIX)'

# ---- of a checkout: the source archive has none of what follows ----

packages: ## build the Debian packages xsmmu-dkms, xsmmu and xsmmu-trace, in results/packages [ARCH=arm64]
	@$(python) -m xsmmu lab packages $(if $(ARCH),--arch '$(ARCH)')

dist: ## pack the sources of the last commit, without the lab, in results
	@version=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' tool/xsmmu/__init__.py) && mkdir -p results && \
		git archive --prefix="xsmmu-$$version/" -o "results/xsmmu-$$version.tar.gz" HEAD && \
		echo "results/xsmmu-$$version.tar.gz"

lab: ## compare all policies in a guest [KERNEL=6.12|7.3|7.2|6.1|folder] [IOMMU=amd] [QUICK=1] [EXPERIMENT=claims]
	@$(python) -m $(if $(filter claims,$(EXPERIMENT)),checks.claims,xsmmu lab run) \
		$(if $(KERNEL),--kernel '$(KERNEL)') $(if $(IOMMU),--iommu '$(IOMMU)') $(if $(filter-out 0,$(QUICK)),--quick) \
		$(if $(filter-out claims,$(EXPERIMENT)),--experiment '$(EXPERIMENT)')

native: ## nanoseconds of all policies on this CPU, in User-Mode Linux behind a fake IOMMU that waits [WAIT=1000] [QUICK=1] [PERF=1]
	@$(python) -m xsmmu lab native $(if $(WAIT),--wait '$(WAIT)') $(if $(filter-out 0,$(QUICK)),--quick) \
		$(if $(filter-out 0,$(PERF)),--perf '$(if $(filter 1,$(PERF)),fused,$(PERF))')

matrix: ## compare all policies on every IOMMU and kernel; goes on where it was [KERNEL=7.2] [IOMMU=amd] [QUICK=1]
	@$(python) -m xsmmu lab matrix $(if $(KERNEL),--kernel '$(KERNEL)') $(if $(IOMMU),--iommu '$(IOMMU)') \
		$(if $(filter-out 0,$(QUICK)),--quick)

test: ## run the tests [TESTS=path]
	@$(tests_exist)
	@$(python) -m pytest -v -n 2 --dist loadfile --no-loadscope-reorder -m "not long and not planted" $(TESTS)

test-long: ## run the tests that take long, or those left of a run that was interrupted [TESTS=path]
	@$(tests_exist)
	@$(python) -m pytest -v --capture=tee-sys -p tests.python.resume -m long $(TESTS)

test-cycles: ## attach, traffic, detach, again and again, on igb and nvme [N=1000]
	@export CYCLES='$(or $(N),1000)'; $(python) -m pytest -v -k many_cycles tests/python/test_guest_cycles.py

test-devices: ## ahci, xhci, sdhci, vmxnet3 and virtio under each policy, which changes under load
	@$(python) -m pytest -v -m long tests/python/test_guest_devices.py

recordings: ## record NICs and a disk in a guest, on the kernel's own path and under each policy [FOLDER=results/recordings]
	@export KEEP_RECORDINGS='$(abspath $(or $(FOLDER),results/recordings))'; mkdir -p "$$KEEP_RECORDINGS"; \
		$(python) -m pytest -v -m long -k 'more or recording_of' tests/python/test_guest_recordings.py tests/python/test_guest_replay.py

tidy: ## check style: C, Python, shell, licences
	@$(python) -m checks.tidy

lab-debug: ## calls, loads and torture on 6.12 and 7.2 that look for errors, built on first use [T=600] [SEED=1]
	@export TORTURE_S='$(or $(T),600)' SEED='$(or $(SEED),1)'; \
		$(python) -m pytest -v --capture=tee-sys -m long tests/python/test_guest_debug.py

sim: ## one run of the simulated world [SEED=1] [POLICY=fused] [EVENTS=1000000] [SWARM=1] [PAGE=64K] [MUTANT=name]
	@$(python) -m checks.sim run --seed '$(or $(SEED),1)' --policy '$(or $(POLICY),fused)' \
		--events '$(or $(EVENTS),1000000)' $(if $(filter-out 0,$(SWARM)),--swarm) \
		$(if $(PAGE),--page '$(PAGE)') $(if $(MUTANT),--mutant '$(MUTANT)')

sim-long: ## run the simulated world until so many billions of operations are done [N=10]
	@$(python) -m checks.sim long --billions '$(or $(N),10)'

mutants: ## plant bugs in engine, module and lab that simulated world, unit tests, guests must find [TESTS=path]
	@$(tests_exist)
	@$(if $(filter command line,$(origin TESTS)),:,$(python) -m checks.sim mutants)
	@$(python) -m pytest -v -n 2 -m planted $(TESTS)

litmus: ## explore small programs of the engine under a weak memory model, and mutants [PROGRAMS=names] [ORDERS=1]
	@$(python) -m checks.litmus run $(PROGRAMS)
	@$(if $(PROGRAMS),:,$(python) -m checks.litmus mutants)
	@$(if $(filter-out 0,$(ORDERS)),$(python) -m checks.litmus orders,:)

coverage: ## branch coverage of core/ by unit tests and simulated world, and what is missed
	@$(python) -m checks.coverage

scale: ## count transfers of lines between 1 to 64 CPUs, locks, flushes [QUICK=1] [CPUS=8,64] [POLICIES=fused] [SITES=10]
	@$(python) -m checks.scale count $(if $(filter-out 0,$(QUICK)),--quick) \
		$(if $(CPUS),--cpus '$(CPUS)') $(if $(POLICIES),--policies '$(POLICIES)') \
		$(if $(SITES),--sites '$(SITES)')

ageing: ## what a long life does to IOVAs and instructions [MAPS=1e6,1e8,1e9] [POLICIES=fused]
	@$(python) -m checks.scale ageing $(if $(MAPS),--maps '$(MAPS)') \
		$(if $(POLICIES),--policies '$(POLICIES)')

fuzz: ## fuzz the engine in the simulated world and the reader of recordings, each with a canary with a bug [T=60] [POLICY=any]
	@$(if $(TRACE_INPUT),:,$(python) -m checks.sim fuzz --seconds '$(or $(T),60)' --policy '$(or $(POLICY),any)' \
		$(if $(MUTANT),--mutant '$(MUTANT)') $(if $(INPUT),--input '$(INPUT)'))
	@$(if $(INPUT)$(MUTANT),:,$(python) -m checks.trace fuzz --seconds '$(or $(T),60)' \
		$(if $(TRACE_INPUT),--input '$(TRACE_INPUT)'))

native-engine: ## time the engine alone on real CPUs, for each policy [CPUS=1,2,4] [POLICIES=fused,xsmmu] [WAIT=0] [ROUNDS=15]
	@$(python) -m xsmmu lab native-engine $(if $(CPUS),--cpus '$(CPUS)') \
		$(foreach policy,$(subst $(comma), ,$(POLICIES)),--policy '$(policy)') \
		$(if $(WAIT),--wait '$(WAIT)') $(if $(ROUNDS),--rounds '$(ROUNDS)')

allocators: ## compare IOVA allocators under the same traffic: Linux's trees and caches, ours [ALLOCATORS=tree,blocks] [THREADS=1,2] [QUICK=1]
	@$(python) -m xsmmu lab allocators $(if $(THREADS),--threads '$(THREADS)') $(if $(filter-out 0,$(QUICK)),--quick) \
		$(foreach name,$(subst $(comma), ,$(ALLOCATORS)),--allocator '$(name)') $(if $(ROUNDS),--rounds '$(ROUNDS)')

fit: ## fit the machine model to one published row (CLAIMS E, strict), and write model/fits.toml [JOBS=2]
	@$(python) -m checks.fit $(if $(JOBS),--jobs '$(JOBS)')

validate: ## compare the machine model with published tables [ACCEPT='reason of a change'] [JOBS=2]
	@export ACCEPT='$(subst ','\'',$(ACCEPT))'; $(python) -m checks.validate $(if $(JOBS),--jobs '$(JOBS)') \
		$(if $(ACCEPT),--accept "$$ACCEPT")

clean: ## remove results, the private root, Python packages and downloads
	@lab/clean.sh
