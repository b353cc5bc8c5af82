package main

// The OpenTelemetry adapter.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "otel: the end of a session leaves holds whose events are missing",
			File: "otel/hold.go",
			Func: "(*Observer).lose",
			Old:  "if errors.Is(e.Err, protocol.ErrNodeDeleted) {",
			New:  "if true {",
			Test: "TestEndOfASessionEndsAllItsHolds",
		},
		{
			Name: "otel: a loss that comes before its hold begins leaves the hold",
			File: "otel/hold.go",
			Func: "(*Observer).begin",
			Old:  "o.holds.forget(o.holds.early, keyOf(e)) || ",
			New:  "",
			Test: "TestLossBeforeItsBeginningCountsOnce",
		},
		{
			Name: "otel: holds that never end fill the memory",
			File: "otel/hold.go",
			Func: "(*Observer).begin",
			Old:  " || o.holds.full()",
			New:  "",
			Test: "TestHoldsThatNeverEndAreBounded",
		},
		{
			Name: "otel: a holder links to a later one",
			File: "otel/hold.go",
			Func: "(*holds).before",
			Old:  "h.token <= e.Token",
			New:  "h.token >= 0",
			Test: "TestHolderDoesNotLinkToALaterOne",
		},
		{
			Name: "otel: the end of a session leaves no room for other holds",
			File: "otel/hold.go",
			Func: "(*holds).removeSession",
			Old:  "s.count -= len(holds)",
			New:  "_ = holds",
			Test: "TestHoldsThatNeverEndAreBounded",
		},
		{
			Name: "otel: paths fill the memory",
			File: "otel/hold.go",
			Func: "(*holds).follow",
			Old:  "makeRoom(s.latest, maxPaths)",
			New:  "",
			Test: "TestPathsThatAreRememberedAreBounded",
		},
		{
			Name: "otel: losses of holds that never begin fill the memory",
			File: "otel/hold.go",
			Func: "(*holds).remember",
			Old:  "makeRoom(ends, maxCounted)",
			New:  "",
			Test: "TestLossesWhoseBeginningNeverComesAreBounded",
		},
		{
			Name: "otel: a holder links to one that is not the latest before it",
			File: "otel/hold.go",
			Func: "(*holds).follow",
			Old:  "if s.latest[e.Path].token > e.Token {",
			New:  "if false {",
			Test: "TestHolderLinksToTheLatestBeforeIt",
		},
		{
			Name: "otel: a queue that does not answer blocks all metrics",
			File: "otel/source.go",
			Func: "(*sources).collect",
			Old:  "context.WithTimeout(ctx, collectTimeout)",
			New:  "context.WithTimeout(ctx, 1000*collectTimeout)",
			Test: "TestQueuesThatDoNotAnswerDelayACollectionByASecond",
		},
		{
			Name: "otel: a loss without trust looks like that of the session",
			File: "otel/errortype.go",
			Func: "lossCause",
			Old:  "return trustOver",
			New:  "return sessionLost",
			Test: "TestLossesByCause",
		},
	}...)
}
