"""The worker that vLLM drives: opens the device, loads the image, and does what its scheduler decides."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, LogprobsLists, ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

from hw.errors import WordlineError
from hw.image import load
from runtime.device import Device
from runtime.job import Ending, Job, Request, Token
from runtime.vllm.batch import Batch, Part
from runtime.vllm.folder import digest
from runtime.vllm.platform import device_of, image_of
from runtime.vllm.requests import Bitmask, request

__all__ = ["WordlineWorker"]

NULL_BLOCK = 1
"""Blocks that vLLM keeps for itself, before the first that is a slot."""


class _Nobody:
    """Listens to a sequence whose tokens vLLM hears of as the worker's answer."""

    def token(self, token: Token) -> bool:
        return True

    def ended(self, ending: Ending) -> None:
        pass


class _Chosen(NamedTuple):
    """A token, and how many are at least as probable, if that was asked for."""

    token: Token
    rank: int | None


class WordlineWorker(WorkerBase):
    """One device. A block of vLLM's KV cache is a slot of the image's: a sequence has exactly one, for as long as
    vLLM lets it run.
    """

    def init_device(self) -> None:
        """Load the image's file and open the device; raises `WordlineError`."""
        path = image_of(self.vllm_config)
        self.image = load(path)
        if digest(self.image) != self.model_config.hf_config.digest:
            raise WordlineError(f"the image that {self.model_config.model} was made for was wanted; {path} is another: "
                                f"run `wordline vllm {path} --output {self.model_config.model}`")
        self.device = torch.device("cpu")  # of vLLM's own tensors
        self._device = Device.open(device_of(self.vllm_config), self.image.config)
        self._jobs: dict[str, Job] = {}
        self._parts: list[Part] = []

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        """Write the image into the device."""
        self._batch = Batch(self._device, self.image)

    def compile_or_warm_up_model(self) -> CompilationTimes:
        """Run a token, so that the first request need not wait for what is compiled at first use."""
        job = Job(Request((0,)), _Nobody(), self.image)
        self._batch.place(job, 0)
        self._batch.run([Part(job, 0, 1)])
        self._batch.slots.cut(self._batch.slots[0], 0)
        return CompilationTimes(0.0, 0.0)

    # The KV cache: vLLM only counts its blocks.

    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        """One layer stands for all; a block takes a whole sequence."""
        return {"slots": FullAttentionSpec(block_size=self.cache_config.block_size, num_kv_heads=1, head_size=1,
                                           dtype=torch.float32)}

    def get_supported_kv_cache_layouts(self) -> list[str]:
        """Any: the layout is the image's."""
        return ["NHD"]

    def determine_available_memory(self) -> int:
        """Bytes, in the sizes of `get_kv_cache_spec`."""
        return (self.image.kv.slots + NULL_BLOCK) * self.get_kv_cache_spec()["slots"].page_size_bytes

    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        """Nothing to allocate; raises `WordlineError` when vLLM's blocks are not the slots."""
        if kv_cache_config.num_blocks != self.image.kv.slots + NULL_BLOCK:
            raise WordlineError(f"{self.image.kv.slots} slots and a block more were wanted; vLLM made "
                                f"{kv_cache_config.num_blocks} blocks: leave num_gpu_blocks_override out")

    def get_supported_tasks(self) -> tuple[str, ...]:
        """Making text."""
        return ("generate",)

    def update_max_model_len(self, max_model_len: int) -> None:
        """Nothing depends on it here."""

    # A step: commands, then choices.

    def execute_model(self, scheduler_output: Any) -> ModelRunnerOutput | None:
        """Run the tokens that are scheduled. None: `sample_tokens` has the answer."""
        for name in scheduler_output.finished_req_ids:
            self._jobs.pop(name, None)
        self._begin(scheduler_output)
        counts = scheduler_output.num_scheduled_tokens
        if not counts:
            return EMPTY_MODEL_RUNNER_OUTPUT
        done = {new.req_id: new.num_computed_tokens for new in scheduler_output.scheduled_new_reqs}
        cached = scheduler_output.scheduled_cached_reqs
        done.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        self._names = list(counts)
        self._parts = [Part(self._jobs[name], self._slot(name), done[name] + count) for name, count in counts.items()]
        self._batch.run(self._parts)
        return None

    def sample_tokens(self, grammar_output: Any) -> ModelRunnerOutput:
        """Choose the tokens that follow, as the server does; a grammar's bits come from vLLM."""
        parts, self._parts = self._parts, []
        if grammar_output is not None:
            for name, bits in zip(grammar_output.structured_output_request_ids, grammar_output.grammar_bitmask,
                                  strict=True):
                constraint = self._jobs[name].request.constraint
                assert isinstance(constraint, Bitmask)
                constraint.bits = np.ascontiguousarray(bits)
        chosen = [self._choose(part) for part in parts]
        return ModelRunnerOutput(
            req_ids=self._names, req_id_to_index={name: n for n, name in enumerate(self._names)},
            sampled_token_ids=[[] if c is None else [c.token.index] for c in chosen],
            logprobs=_logprobs(chosen))

    def shutdown(self) -> None:
        """Give the device back."""
        if hasattr(self, "_device"):
            self._device.close()
        if not torch.accelerator.is_available():
            # Of every platform but the CPU vLLM empties the accelerator's caches last, which torch refuses without one.
            torch.accelerator.empty_cache = torch.accelerator.empty_host_cache = _nothing

    def _begin(self, scheduled: Any) -> None:
        """Put new sequences, and those that vLLM had set aside, into their slots."""
        for new in scheduled.scheduled_new_reqs:
            if new.req_id not in self._jobs:  # else it is one that comes back
                self._jobs[new.req_id] = Job(request(new.sampling_params, new.prompt_token_ids), _Nobody(), self.image)
            self._place(new.req_id, new.block_ids)
        cached = scheduled.scheduled_cached_reqs
        for name, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if name in cached.resumed_req_ids:
                self._place(name, blocks)

    def _place(self, name: str, blocks: tuple[list[int], ...]) -> None:
        (block,), = blocks
        self._batch.place(self._jobs[name], block - NULL_BLOCK)

    def _slot(self, name: str) -> int:
        slot = self._jobs[name].slot
        assert slot is not None
        return slot

    def _choose(self, part: Part) -> _Chosen | None:
        if part.outcome is None:
            return None
        best, logits = part.outcome.best, part.outcome.logits
        token = part.job.choose(best, logits)
        part.job.generated.append(token.index)
        if token.logprob is None or logits is None:
            return _Chosen(token, None)
        return _Chosen(token, int(np.count_nonzero(logits >= logits[token.index])))


def _nothing() -> None:
    pass


def _logprobs(chosen: Sequence[_Chosen | None]) -> LogprobsLists | None:
    """Rows as long as the longest: the token itself, then the most probable ones. A row without is not looked at."""
    told = {n: (c.token, c.rank) for n, c in enumerate(chosen) if c is not None and c.rank is not None}
    if not told:
        return None
    width = 1 + max(len(token.top) for token, _ in told.values())
    tokens = np.zeros((len(chosen), width), np.int32)
    logs = np.full((len(chosen), width), -np.inf, np.float32)
    ranks = np.zeros(len(chosen), np.int32)
    for n, (token, rank) in told.items():
        pairs = [(token.index, token.logprob), *token.top]
        tokens[n, :len(pairs)], logs[n, :len(pairs)] = zip(*pairs, strict=True)
        ranks[n] = rank
    return LogprobsLists(tokens, logs, ranks)
