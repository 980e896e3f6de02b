# Chores of the house. `make help` lists them.

.PHONY: help deps programs programs-all
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

programs: ## compile programs/*.c into build/programs
	@scripts/build-programs.sh

programs-all: ## the same with clang 14 and clang 19, into build/clang-14 and build/clang-19
	@scripts/build-programs.sh --clang clang-14 --out build/clang-14
	@scripts/build-programs.sh --clang clang-19 --out build/clang-19
