.PHONY: release test-release test-chart

release: ## build archives, packages, images, SBOMs and the chart of this version into dist/ (PROFILES=1: also the image with the profiler; dev/release/README.md)
	@PROFILES=$(PROFILES) dev/release/release.sh

test-release: # install what make release has built, in throwaway roots (root, apt)
	@dev/release/test.sh

test-chart: build-kubernetes build-gpu # render the chart with many values, and check all objects and configurations
	@deploy/chart/test.sh
