"""A program of vLLM's user: makes an `LLM`, asks it what standard input says, and prints what came as JSON."""

import json
import sys
from typing import Any


def ask(llm: Any, prompts: list[list[int]], params: list[Any]) -> list[dict[str, Any]]:
    """Tokens, text, reason and logarithms of every choice."""
    return [{"tokens": list(choice.token_ids), "text": choice.text, "reason": choice.finish_reason,
             "logprobs": choice.logprobs and [{str(t): (p.logprob, p.rank) for t, p in place.items()}
                                              for place in choice.logprobs]}
            for output in llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
            for choice in output.outputs]


def interrupted(engine: Any, prompts: list[list[int]], params: list[Any], steps: list[int]) -> list[list[int]]:
    """Tokens of every prompt when, after some steps, everything that runs is set aside."""
    for n, prompt in enumerate(prompts):
        engine.add_request(str(n), {"prompt_token_ids": prompt}, params[n])
    tokens, step = {}, 0
    while engine.has_unfinished_requests():
        tokens.update({int(o.request_id): list(o.outputs[0].token_ids) for o in engine.step() if o.finished})
        step += 1
        if step in steps:
            assert engine.reset_prefix_cache(reset_running_requests=True)
    return [tokens[n] for n in range(len(prompts))]


def generated(given: dict[str, Any]) -> dict[str, Any]:
    """What vLLM answers: `found` for all requests at once, `refused` for each alone, `chat` for a conversation, and
    `interrupted` for all once more.
    """
    from vllm import LLM, SamplingParams
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import StructuredOutputsParams

    def params(fields: dict[str, Any]) -> Any:
        if form := fields.pop("structured_outputs", None):
            fields["structured_outputs"] = StructuredOutputsParams(**form)
        return SamplingParams.from_optional(**fields)  # which makes numbers of the keys of JSON

    llm = LLM(model=given["folder"], disable_log_stats=False, **given.get("options", {}))
    prompts, wishes = ([r["prompt"] for r in given["requests"]], [params(r["params"]) for r in given["requests"]])
    found, refused = ask(llm, prompts, wishes), []
    for fields in given.get("refused", []):
        try:
            refused.append(f"answered: {ask(llm, [[5, 6]], [params(fields)])}")
        except VLLMValidationError as error:
            refused.append(str(error))
    chat = given.get("chat") and llm.chat(given["chat"], SamplingParams(temperature=0, max_tokens=12), use_tqdm=False)
    steps = given.get("interrupt")
    return {"found": found, "refused": refused,
            "interrupted": steps and interrupted(llm.llm_engine, prompts, wishes, steps),
            "chat": chat and {"prompt": list(chat[0].prompt_token_ids), "tokens": list(chat[0].outputs[0].token_ids),
                              "text": chat[0].outputs[0].text}}


def configured(given: dict[str, Any]) -> list[str]:
    """What vLLM says to each of some settings, before it starts anything."""
    from vllm.engine.arg_utils import EngineArgs

    said = []
    for options in given["configure"]:
        try:
            c = EngineArgs(**{"model": given["folder"], **options}).create_engine_config()
        except (TypeError, ValueError) as error:
            said.append(str(error))
        else:
            said.append(f"{c.scheduler_config.max_num_seqs} sequences of {c.model_config.max_model_len} tokens, prefix "
                        f"caching {c.cache_config.enable_prefix_caching}, {c.parallel_config.worker_cls}")
    return said


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print("\nANSWER " + json.dumps(configured(asked) if "configure" in asked else generated(asked)), flush=True)
