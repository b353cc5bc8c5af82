// Package real has the tests that need real servers, other libraries or minutes. It is a module of
// its own, so that the tests of the other module need nothing but Go.
//
//	.ci/run real            its tests, and those of the recipes on a real server
//	go test ./internal/real/...
//
// The tests of this package run on ensembles of three, of which they stop, cut off and depose
// members, and run some tests of package protocol on servers with unusual settings.
// Beside it are
//
//   - differential: the same operations on the embedded server and on a real one,
//   - interop: Apache Curator and kazoo beside our recipes,
//   - model: models of the line and of trust, which spin searches,
//   - mutants: makes mutants of the code by rule, and expects a test to fail,
//   - nemesis: all recipes at work on an ensemble that is broken meanwhile,
//   - serve: runs a command beside a real server,
package real
