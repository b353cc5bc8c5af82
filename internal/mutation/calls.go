package main

func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "watches: one whose answer waits when the connection is cut is not set again",
			File: "protocol/connection.go",
			Old:  "w.sent = slices.Clone(sent)",
			New:  "w.sent = nil",
			Test: "TestUnreadAnswerKeepsItsWatchWhenTheConnectionIsCut",
		},
		{
			Name:    "clean-up: a call that was given up takes a place in line later",
			File:    "protocol/detach.go",
			Old:     "		return errGivenUp\n	default:",
			New:     "		return nil\n	default:",
			Package: "./protocol/line",
			Test:    "TestCallThatWasGivenUpCreatesNothingLater",
		},
		{
			Name:    "clean-up: what a call whose back-off has ended had created is left",
			File:    "protocol/detach.go",
			Old:     "if err == nil && undo != nil {",
			New:     "if false {",
			Package: "./protocol/line",
			Test:    "TestNothingIsLeftBehindAtWhateverStepACallEnds",
		},
		{
			Name: "back-off: the time in line counts",
			File: "protocol/recipe.go",
			Old:  "pause == nil || time.Since(began) > s.Timeout()",
			New:  "pause == nil || time.Since(began) < 0",
			Test: "TestBackOffBeginsWithTheFailureNotWithTheWait",
		},
	}...)
}
