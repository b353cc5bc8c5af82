package main

// What a killed process leaves, and what a call leaves that gives up.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name:    "killed: a place in line outlives its session",
			File:    "protocol/line/contender.go",
			Old:     "&zk.CreateRequest{Path: prefix, Data: data, Acl: acl, Flags: zk.FlagEphemeralSequential}",
			New:     "&zk.CreateRequest{Path: prefix, Data: data, Acl: acl, Flags: zk.FlagSequence}",
			Package: "./internal/killstep",
			Test:    "TestProcessKilledAtEachPacketLeavesWhatIsDocumented/operations/lock.Mutex:_enter,_free$",
		},
		{
			Name:    "killed: a receipt outlives its session",
			File:    "queue/receipt.go",
			Old:     "r.session.Create(life, node, nil, zk.FlagEphemeral)",
			New:     "r.session.Create(life, node, nil, zk.FlagPersistent)",
			Package: "./internal/killstep",
			Test:    "TestProcessKilledAtEachPacketLeavesWhatIsDocumented/operations/queue:_offer$",
		},
		{
			Name: "own: a directory that was created for nothing stays",
			File: "protocol/own.go",
			Old:  "err != nil && !made",
			New:  "err != nil && (!made || made)",
			Test: "TestCancelledCreateLeavesNoDirectoryAtAnyStep",
		},
		{
			Name: "own: a directory is created after the caller has gone",
			File: "protocol/own.go",
			Old:  "			if err := Wanted(ctx); err != nil {\n				return nil, err\n			}\n			if made {",
			New:  "			if made {",
			Test: "TestCancelledCreateLeavesNoDirectoryAtAnyStep",
		},
		{
			Name: "queue: watches for numbers that others have got pile up",
			File: "queue/wait.go",
			Old:  "			f.unfired++\n",
			New:  "",
			Test: "TestNumbersOfOtherEntriesLeaveFewWatches",
		},
		{
			Name: "queue: a consumer that watches all entries hears of none",
			File: "queue/wait.go",
			Old:  "		node = c.path\n",
			New:  "		node = c.path + \"/nothing\"\n",
			Test: "TestConsumerThatWatchesAllEntriesMissesNone",
		},
	}...)
}
