package main

// What the logger and the observer are told.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "outage: a lost connection is told of to nothing but listeners",
			File: "protocol/observe.go",
			Old:  "		c.beginOutage()\n",
			New:  "",
			Test: "TestLostConnectionIsToldOfUntilItIsBack|TestManyCallsThatWait",
		},
		{
			Name: "outage: Connect is silent",
			File: "protocol/client.go",
			Old:  "	c.beginOutage()\n",
			New:  "",
			Test: "TestConnectToNoServerIsToldOf",
		},
		{
			Name: "outage: each short connection begins a new one",
			File: "protocol/outage.go",
			Old:  "if o.began.IsZero() || lasted {",
			New:  "if true || lasted {",
			Test: "TestConnectionThatComesAndGoesIsToldOf",
		},
		{
			Name: "outage: notices come at equal intervals",
			File: "protocol/outage.go",
			Old:  "min(2*o.pause, rarestNotice)\n",
			New:  "firstNotice\n",
			Test: "TestConnectToNoServerIsToldOf",
		},
		{
			Name: "outage: each notice has a goroutine that waits for a blocked logger",
			File: "protocol/outage.go",
			Old:  "if o.telling {",
			New:  "if false {",
			Test: "TestBlockedLoggerIsToldOfAnOutageByOneGoroutine",
		},
		{
			Name:    "events: a wait is told of when it is over",
			File:    "protocol/recipe.go",
			Old:     "	r.waiting(ctx)\n",
			New:     "",
			Package: "./internal/suite",
			Test:    "TestWaitsAreReported",
		},
		{
			Name:    "events: lines inside a queue are reported",
			File:    "protocol/recipe.go",
			Old:     "if r == nil || r.whole != nil || r.client == nil",
			New:     "if r == nil || r.client == nil",
			Package: "./internal/suite",
			Test:    "TestWaitsAreReported/queue_offer",
		},
		{
			Name:    "events: the end of a downgrade is not told of",
			File:    "protocol/replace.go",
			Old:     "	defer func() { r.acquired(ctx, began, next, err) }()\n",
			New:     "	_ = began\n",
			Package: "./internal/suite",
			Test:    "TestFurtherWaitsAreReported",
		},
		{
			Name:    "events: the end of a wait to leave is not told of",
			File:    "doublebarrier/entry.go",
			Old:     "	leaves.Waited(ctx, began, in, 0, err)\n",
			New:     "	_, _ = began, in\n",
			Package: "./internal/suite",
			Test:    "TestFurtherWaitsAreReported",
		},
		{
			Name:    "events: the end of a wait to join again is not told of",
			File:    "group/member.go",
			Old:     "		m.group.recipe.Waited(ctx, began, p.grant.Session(), p.grant.Token(), nil)\n",
			New:     "		_ = began\n",
			Package: "./internal/suite",
			Test:    "TestFurtherWaitsAreReported",
		},
		{
			Name: "outage: each connection is told of after one outage",
			File: "protocol/outage.go",
			Old:  "	o.told = false\n",
			New:  "",
			Test: "TestLostConnectionIsToldOfUntilItIsBack",
		},
		{
			Name: "events: a loss has no caller",
			File: "protocol/grant.go",
			Old:  "context.WithCancelCause(r.values(ctx))",
			New:  "context.WithCancelCause(context.Background())",
			Test: "TestEventsHaveTheCallersContext",
		},
		{
			Name:    "calls: nodes of ZooKeeper's own may be used",
			File:    "protocol/path.go",
			Old:     "if reserved(c.chroot + path) {",
			New:     "if false {",
			Package: "./internal/suite",
			Test:    "TestBadArgumentsAreRefusedByEveryVerb",
		},
	}...)
}
