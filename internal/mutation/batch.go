package main

// Requests that are served together.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "batch: a request that was sent is withdrawn",
			File: "internal/batch/batch.go",
			Old:  "	case request.sent:\n		return false",
			New:  "	case false:\n		return false",
			Test: "TestGraceForARequestThatWasSent|TestEachRequestIsAnsweredOnce",
		},
		{
			Name: "batch: a request whose ctx has ended is sent",
			File: "internal/batch/batch.go",
			Func: "(*Batcher[R]).Collect",
			Old:  "	b.endExpired()\n",
			New:  "",
			Test: "TestExpiredRequestIsNotCollected",
		},
		{
			Name: "batch: a small request overtakes a large one",
			File: "internal/batch/room.go",
			Old:  "		r.full = true\n",
			New:  "		return false\n",
			Test: "TestRoomThatIsFullStaysFull",
		},
		{
			Name: "batch: several requests have as much room as one alone",
			File: "internal/batch/room.go",
			Old:  "		most = r.limits.Bytes\n",
			New:  "",
			Test: "TestBatchesAreBounded",
		},
		{
			Name: "batch: requests wait for a host that is over",
			File: "internal/batch/batch.go",
			Old:  "if err := b.host.Err(); err != nil {",
			New:  "if err := b.host.Err(); err != nil && false {",
			Test: "TestLostHostHandsRequestsBack",
		},
		{
			Name: "batch: a goroutine that could not be started is waited for",
			File: "internal/batch/batch.go",
			Old:  "	b.end(err, slices.Clone(b.pending)...)\n	b.serving = false",
			New:  "	b.end(err, slices.Clone(b.pending)...)",
			Test: "TestLostHostHandsRequestsBack",
		},
		{
			Name: "batch: batches stay small",
			File: "internal/batch/room.go",
			Old:  " && time.Since(s.shrunk) < growAfter",
			New:  "",
			Test: "TestShrunkBatchesGrowAgain",
		},
		{
			Name: "batch: a request that went back is taken for one that was sent",
			File: "internal/batch/batch.go",
			Func: "(*Batcher[R]).leave",
			Old:  "	if request.sent {",
			New:  "	if true {",
			Test: "TestReturnedRequestHasNoUnknownOutcome",
		},
	}...)
}
