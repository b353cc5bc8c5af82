package main

// The election.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name:    "election: a Proclaim is written again when its answer was lost",
			File:    "protocol/setdata.go",
			Old:     "done, err = g.wasSet(ctx, data, stat.Version)",
			New:     "_, err = g.wasSet(ctx, data, stat.Version)",
			Package: "./election",
			Test:    "TestProclaimWithTheConnectionCutAtAnyPacket/embedded|TestProclaimTakesEffectOnce/embedded",
		},
		{
			Name:    "election: a Proclaim that was not executed counts as done",
			File:    "protocol/setdata.go",
			Old:     "err != nil || now.stat.Version == version:\n\t\treturn false, err",
			New:     "err != nil || now.stat.Version == version:\n\t\treturn true, err",
			Package: "./election",
			Test:    "TestProclaimWithTheConnectionCutAtAnyPacket/embedded",
		},
		{
			Name: "election: the node is given up before the work is over",
			File: "election/election.go",
			Old:  "done := protocol.RunHeld(ctx, t.grant, func(held context.Context) error {",
			New:  "done := protocol.RunHeld(ctx, t.grant, func(held context.Context) error {\n\t\tt.grant.Release(context.WithoutCancel(ctx))",
			Test: "TestRunLeadsAgainAfterEachEndOfATerm/embedded|TestRunEndsWithItsContextAfterLeadHasReturned",
		},
		{
			Name: "election: the leader is read without a sync",
			File: "election/observe.go",
			Func: "(*Election).first",
			Old:  "\tif err := s.Sync(ctx, e.recipe.Path()); err != nil {\n\t\treturn Leader{}, err\n\t}\n",
			New:  "",
			Test: "TestLeaderIsNoOlderThanTheCall|TestElectionIsAFairLock",
		},
		{
			Name: "election: a candidate that comes before the watch on the line is overlooked",
			File: "election/observe.go",
			Func: "(*observation).vacancy",
			Old:  "if e.line.Any(w.Children()) {",
			New:  "if false {",
			Test: "TestObserve",
		},
	}...)
}
