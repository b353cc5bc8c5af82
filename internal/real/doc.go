// Package real has the tests that need real servers, other libraries or minutes. It is a module of
// its own, so that the tests of the main module need only Go.
//
//	.ci/run real            its tests, and the recipes' tests on a real server
//	go test ./internal/real/...
//
// The tests of this package run on ensembles of three, and stop, cut off and depose members. They
// also run some tests of package protocol on servers with unusual settings. Beside it are
//
//   - differential: the same operations on the embedded server and on a real server,
//   - interop: Apache Curator and kazoo beside our recipes,
//   - model: models of the line and of trust, which spin searches,
//   - mutants: makes mutants of the code by rule, and expects a test to fail,
//   - nemesis: all recipes at work on an ensemble that is being broken,
//   - serve: runs a command beside a real server.
package real
