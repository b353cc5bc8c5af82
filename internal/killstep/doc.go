// Package killstep has only tests. They kill a process, as kill -9 does, after each packet of each
// operation of each recipe. Then they look at what is left in the tree once its session has ended.
//
// What is left, and who removes it when, stands in testdata/left.txt and in docs/failure.md. Both
// are compared with what the tests find. With
//
//	go test ./internal/killstep -update
//
// they are written anew.
package killstep
